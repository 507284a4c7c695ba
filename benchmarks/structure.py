"""Measure the structure of a source tree: rooms, imports, names, checks of types, and what one fit enters.

python benchmarks/structure.py [REPOSITORY]     # this one by default; PYTHONPATH=REPOSITORY/src for the fit
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[1])
PACKAGE = ROOT / "src" / "dpcvx"
ORDER = (
    "words errors arrays events -> gpu losses domains -> problem -> accounting -> ledger -> noise -> data -> "
    "mechanisms -> plans -> solvers -> planning -> estimators -> tuning queries -> report papers audit -> "
    "demo service -> cli"
)
LEVEL = {name: level for level, names in enumerate(ORDER.split(" -> ")) for name in names.split()}
FIT = """
import sys, numpy as np, pandas as pd, warnings
warnings.simplefilter("ignore")
import dpcvx
rng = np.random.default_rng(0)
n = 20_000
X = pd.DataFrame({"age": rng.uniform(18, 90, n), "hours": rng.uniform(0, 60, n)})
X["sex"] = rng.choice(["f", "m"], n)
y = (X["age"] > 50).astype(int)
def fit():
    bounds = {"age": (18, 90), "hours": (0, 60)}
    dpcvx.PrivateLogisticRegression(
        epsilon=1.0, bounds=bounds, categories={"sex": ["f", "m"]}, classes=(0, 1), random_state=0
    ).fit(X, y)
fit()
seen, crossings, names = {}, 0, {}
def watch(frame, event, argument):
    global crossings
    if event == "call":
        file = frame.f_code.co_filename
        if "/dpcvx/" in file:
            seen[file] = seen.get(file, 0) + 1
            name = frame.f_code.co_qualname if hasattr(frame.f_code, "co_qualname") else frame.f_code.co_name
            names[name] = names.get(name, 0) + 1
            back = frame.f_back.f_code.co_filename if frame.f_back else ""
            crossings += "/dpcvx/" in back and back != file
sys.setprofile(watch)
fit()
sys.setprofile(None)
schedule = sum(v for k, v in names.items() if k.endswith("_schedule"))
print(len(seen), sum(seen.values()), crossings, schedule, names.get("gaussian_mu", 0))
"""


def modules():
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


def edges(found):
    """(module, imported module) counting lazy and typing imports."""
    for module, path in found.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpcvx"):
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}".removeprefix("dpcvx.")
                    plain = node.module.removeprefix("dpcvx").removeprefix(".")
                    yield module, inner if inner in found else plain


def cycles(pairs, names):
    index = {name: i for i, name in enumerate(names)}
    kept = [(index[a], index[b]) for a, b in pairs if a and b and a != b and b in index]
    shape = (len(names), len(names))
    graph = csr_array((np.ones(len(kept)), tuple(zip(*kept, strict=True))), shape=shape)
    sizes = np.bincount(connected_components(graph, connection="strong")[1])
    return [int(size) for size in sizes if size > 1]


def twin_classes(found):
    homes = {}
    for module, path in found.items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, set()).add(module.split(".")[0])
    return sorted(name for name, rooms in homes.items() if len(rooms) > 1)


def type_checks(found):
    """isinstance on losses, sets, solvers or mechanisms outside their own rooms."""
    kinds = {"losses": [], "domains": [], "solvers": [], "mechanisms": []}
    for module, path in found.items():
        room = module.split(".")[0]
        if room in kinds:
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and "Protocol" not in ast.unparse(node):
                    kinds[room].append(node.name)
    count = 0
    for module, path in found.items():
        others = {name for room, names in kinds.items() if room != module.split(".")[0] for name in names}
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                count += bool(others & set(re.findall(r"\w+", ast.unparse(node.args[1]))))
    return count


def lines(folder):
    return sum(len(path.read_text().splitlines()) for path in (ROOT / folder).rglob("*.py"))


def main():
    found = modules()
    pairs = list(edges(found))
    rooms = [(a.split(".")[0], b.split(".")[0]) for a, b in pairs if a and b]
    upward = [(a, b) for a, b in rooms if LEVEL.get(b, 0) > LEVEL.get(a, 99)]
    stems = Counter(module.split(".")[-1] for module in found if module)
    print("files at the top", len(list(PACKAGE.glob("*.py"))))
    print("rooms", len([p for p in PACKAGE.iterdir() if (p / "__init__.py").exists()]))
    print("upward imports", len(upward))
    print("cycles (sizes)", cycles(pairs, list(found)))
    print("module names that repeat", sorted(name for name, count in stems.items() if count > 1))
    print("public classes with a twin", twin_classes(found))
    print("isinstance on losses, sets, solvers, mechanisms elsewhere", type_checks(found))
    print("lines of src, tests", lines("src"), lines("tests"))
    done = subprocess.run([sys.executable, "-c", FIT], capture_output=True, text=True, env=None)
    print(
        "one fit: modules, calls, crossings, schedules, gaussian_mu:",
        done.stdout.strip() or done.stderr[-300:],
    )


if __name__ == "__main__":
    main()
