"""Write docs/paper_statements.json: the numbered statements of the five papers, read from their texts.

`python docs/paper_statements.py` expects the texts in the folder that DPCVX_PAPERS names, by default
../shared/papers beside the repository. The file holds kinds and numbers alone, no text. A test compares it
with the rows of paper_to_code.md, and with the texts where they are found.

A statement is a numbered algorithm, theorem, lemma, claim, corollary, fact, proposition or remark.
Definitions fix words and claim nothing; figures of U15 are games of its proofs, apart from Figure 3.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = Path(os.environ.get("DPCVX_PAPERS", HERE.parents[1] / "shared" / "papers"))
TEXTS = {
    "TTZ14": "talwar-thakurta-zhang-geometry.txt",
    "TTZ15": "talwar-thakurta-zhang-private-lasso.txt",
    "WYX17": "wang-ye-xu-faster-and-more-general.txt",
    "KD19": "structured-sparsity-risk-minimization.txt",
    "U15": "ullman-pmw-beyond-linear-queries.txt",
}
KINDS = "Algorithm|Theorem|Lemma|Claim|Corollary|Fact|Proposition|Remark"
NUMBERED = re.compile(rf"\b({KINDS})\*? ((?:[A-Z]\.|\d+\.)?\d+)\b")
# Statements of other works: "[KEY, Theorem 7]", "Corollary 16 from [KEY]", "Theorem 1 of [18]".
FOREIGN_BEFORE = re.compile(r"\[[^\[\]]*$")
FOREIGN_AFTER = re.compile(r"^ (?:from|of|in)\s+\[")


def statements(text: str) -> list[str]:
    """Return the numbered statements of a paper, such as "Theorem 3.2", without those of works it cites."""
    found = set()
    for match in NUMBERED.finditer(text):
        before, after = text[max(0, match.start() - 40) : match.start()], text[match.end() : match.end() + 8]
        if not (FOREIGN_BEFORE.search(before) or FOREIGN_AFTER.match(after)):
            found.add((match[1], match[2]))
    return [f"{kind} {number}" for kind, number in sorted(found, key=_order)]


def _order(statement: tuple[str, str]) -> tuple[str, list[tuple[int, str]]]:
    kind, number = statement
    return kind, [(int(part), "") if part.isdigit() else (10**6, part) for part in number.split(".")]


def read() -> dict[str, list[str]]:
    """Return the statements of every paper whose text is found."""
    paths = {key: FOLDER / name for key, name in TEXTS.items()}
    return {key: statements(path.read_text()) for key, path in paths.items() if path.is_file()}


if __name__ == "__main__":
    found = read()
    if missing := sorted(TEXTS.keys() - found.keys()):
        raise SystemExit(
            f"No text of {', '.join(missing)} in {FOLDER}. Set DPCVX_PAPERS to the folder of the papers."
        )
    (HERE / "paper_statements.json").write_text(json.dumps(found, indent=1) + "\n")
    print({key: len(names) for key, names in found.items()})
