"""Write docs/paper_statements.json: the numbered statements of the five papers, read from their texts.

    python docs/paper_statements.py [FOLDER]

FOLDER holds the five papers as plain text, named as in `TEXTS`: download them (paper_to_code.md has the
references) and convert each with `pdftotext paper.pdf name.txt`. Without it the folder is the one that
DPCVX_PAPERS names, or ../shared/papers beside the repository. The file that is written holds kinds and
numbers alone, no text, and is part of the repository: the papers are needed only to read the numbers anew. A
test compares it with the rows of paper_to_code.md, and with the texts where they are found.

A statement is a numbered algorithm, theorem, lemma, claim, corollary, fact, proposition or remark.
Definitions fix words and claim nothing; figures of U15 are games of its proofs, apart from Figure 3.
"""

from __future__ import annotations

import json
import os
import re
import sys
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


def read(folder: Path = FOLDER) -> dict[str, list[str]]:
    """Return the statements of every paper whose text is found."""
    paths = {key: folder / name for key, name in TEXTS.items()}
    return {key: statements(path.read_text()) for key, path in paths.items() if path.is_file()}


def main(arguments: list[str]) -> None:
    """Read the texts and write the list."""
    if len(arguments) > 1 or any(each.startswith("-") for each in arguments):
        raise SystemExit(__doc__)
    folder = Path(arguments[0]) if arguments else FOLDER
    found = read(folder)
    if missing := sorted(TEXTS.keys() - found.keys()):
        names = "\n".join(f"  {TEXTS[key]} ({key})" for key in missing)
        raise SystemExit(
            f"These texts are not in {folder}:\n{names}\nDownload the papers, convert them with pdftotext, "
            "and name their folder: python docs/paper_statements.py FOLDER. Nothing was written."
        )
    (HERE / "paper_statements.json").write_text(json.dumps(found, indent=1) + "\n")
    print({key: len(names) for key, names in found.items()})


if __name__ == "__main__":
    main(sys.argv[1:])
