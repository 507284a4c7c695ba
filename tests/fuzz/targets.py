"""Doors through which strangers' bytes come in. Each target reads one input and lets every error out.

Cells of tables hold `SECRET` and `NUMBER`, which no message may repeat.
"""

import io
import json
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
from inputs import changed_bytes, changed_json
from scipy import sparse

import dpcvx as dp
import foreign_files
from dpcvx.checker import verify_statement
from dpcvx.data.files import open_table, read_header
from dpcvx.data.model_formula import read_formula
from dpcvx.data.table_schema import TableSchema
from dpcvx.queries import Schema, query_from_json
from dpcvx.service.application import application
from serving import REGRESSION, SCHEMA, Teller, make_analysts

SECRET, NUMBER = "Zwölfaxinger", "86753.0991"
FIXTURES = Path(__file__).parents[1] / "fixtures" / "version_0_1"
CORPUS = Path(__file__).parent / "corpus"
PEOPLE = {
    "age": ["31", NUMBER, "55", "", "47", "28", "nan", "63"],
    "town": ["north", "south", SECRET, "north", "", "south", "north", "south"],
    "wage": ["10.5", "12", "7", "9", NUMBER, "", "11", "8"],
}
COLUMNS = {
    "age": dp.NumberColumn((0, 100)),
    "town": dp.LevelColumn(("north", "south")),
    "wage": dp.NumberColumn((0, 40)),
}
DECLARED = dp.TableSchema(COLUMNS, target="wage")


@dataclass(frozen=True)
class Target:
    """`examples`: right inputs; `read`: reads an input, may name its outcome; `change`: makes new inputs."""

    name: str
    examples: Callable[[], list[bytes]]
    read: Callable[[bytes], object]
    change: Callable[..., bytes] = changed_json

    def seeds(self) -> list[bytes]:
        """Right inputs, and those that once did harm."""
        kept = sorted((CORPUS / self.name).glob("*"))
        return [*self.examples(), *(path.read_bytes() for path in kept)]


@cache
def scratch() -> Path:
    """A folder in memory where there is one; it goes with the process."""
    folder = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    scratch.keep = folder
    return Path(folder.name)


def placed(content: bytes, name: str) -> Path:
    path = scratch() / name
    path.write_bytes(content)
    return path


def fit_people(path: Path) -> None:
    """Read a file as `dpcvx fit` does, and fit a model to it."""
    read_header(path)
    table = open_table(path)
    if not set(PEOPLE) <= set(table.columns):
        return  # the command says which columns are missing
    X, y = table.read(["age", "town"], ["town"], "wage")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.UselessModelWarning)
        dp.PrivateLinearRegression(epsilon=1.0, schema=DECLARED, random_state=0).fit(X, y)


def csv_examples() -> list[bytes]:
    plain = pd.DataFrame(PEOPLE).to_csv(index=False).encode()
    return [plain, plain.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + plain, plain.replace(b",", b" , ")]


def parquet_examples() -> list[bytes]:
    found = []
    for table in (pa.table(PEOPLE), pa.table(PEOPLE | {"age": [31.0, 86753.0991, None, 2, 3, 4, 5, 6]})):
        file = io.BytesIO()
        pa.parquet.write_table(table, file, compression="none")
        found.append(file.getvalue())
    return found


def arrow_examples() -> list[bytes]:
    file = io.BytesIO()
    table = pa.table(PEOPLE)
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    return [file.getvalue()]


def read_arrow(content: bytes) -> None:
    try:
        table = pa.ipc.open_stream(content).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, MemoryError):
        return  # the user's own reader has refused it
    X = table.drop_columns(["wage"]) if "wage" in table.column_names else table
    y = table["wage"] if "wage" in table.column_names else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.UselessModelWarning)
        dp.PrivateLinearRegression(epsilon=1.0, schema=DECLARED, random_state=0).fit(X, y)


def csr_examples() -> list[bytes]:
    parts = {
        "data": [1.0, -0.5, 0.25, 1.0, 86753.0991],
        "indices": [0, 2, 1, 0, 2],
        "indptr": [0, 2, 3, 3, 5],
        "shape": [4, 3],
        "y": [0, 1, 1, 0],
    }
    return [json.dumps(parts).encode()]


def read_csr(content: bytes) -> None:
    """Fit to sparse rows whose parts nobody has checked."""
    try:
        parts = json.loads(content)
        arrays = [np.asarray(parts[name]) for name in ("data", "indices", "indptr")]
        if any(array.ndim != 1 or array.dtype == object for array in arrays):
            return
        X = sparse.csr_matrix(tuple(parts["shape"]))
        if X.shape[0] > 1000 or X.shape[1] > 1000:
            return
    except (ValueError, TypeError, KeyError, OverflowError, MemoryError):
        return  # no such matrix can be made
    X.data, X.indices, X.indptr = arrays
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.UselessModelWarning)
        model = dp.PrivateLogisticRegression(epsilon=1.0, bounds=(-2, 2), classes=(0, 1), random_state=0)
        model.fit(X, parts.get("y"))


def workbook_examples() -> list[bytes]:
    return [_foreign(foreign_files.excel, "example.xlsx")]


def stata_examples() -> list[bytes]:
    return [_foreign(foreign_files.stata, "example.dta")]


def spss_examples() -> list[bytes]:
    return [_foreign(foreign_files.spss, "example.sav")]


def _foreign(write: Callable[..., object], name: str) -> bytes:
    header = list(PEOPLE)
    rows = [",".join(row) for row in zip(*PEOPLE.values(), strict=True)]
    content = "\n".join([",".join(header), *rows, ""]).encode()
    write(content, scratch() / name)
    return (scratch() / name).read_bytes()


def model_examples() -> list[bytes]:
    kept = sorted((FIXTURES / "models").glob("*.json"))
    return [path.read_bytes() for path in kept if path.stat().st_size < 30_000]


def statement_examples() -> list[bytes]:
    models = [json.loads(content) for content in model_examples()]
    fresh = dp.PrivateLinearRegression(epsilon=1.0, bounds=(0, 1), y_bounds=(0, 1), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fresh.fit(np.linspace(0, 1, 40).reshape(20, 2), np.linspace(0, 1, 20))
    found = [model["statement"] for model in models if isinstance(model.get("statement"), dict)]
    return [json.dumps(each).encode() for each in (*found, fresh.privacy_statement_.to_dict())]


def declaration_examples() -> list[bytes]:
    people = Path(__file__).parents[2] / "examples" / "people.toml"
    return [people.read_bytes(), DECLARED.to_toml().encode()]


def engine_schema_examples() -> list[bytes]:
    return [SCHEMA.to_json().encode()]


def query_examples() -> list[bytes]:
    queries = [
        REGRESSION,
        REGRESSION
        | {"loss": "squared", "where": {"region": ["north"]}, "set": {"name": "L1Ball", "radius": 2.0}},
        {"kind": "regression", "formula": "smokes ~ age + sex"},
        {"kind": "count", "where": {"sex": ["f"], "region": ["north", "west"]}},
        {"kind": "mean", "of": "age", "where": {"smokes": ["yes"]}},
        {"kind": "marginal", "attributes": ["sex", "age"]},
    ]
    return [json.dumps(query).encode() for query in queries]


def formula_examples() -> list[bytes]:
    return [
        b"log(wage) ~ age + C(region, ref='north') + age:sex",
        b"wage ~ (age + town)**2 - age:town + np.log(age)",
        b"C(town) ~ 0 + age*town + {age + 1}",
    ]


@cache
def client() -> tuple[object, dict[str, str]]:
    from starlette.testclient import TestClient

    analysts = make_analysts(scratch(), Teller())
    _, text = analysts.keys.create("fuzz", scopes=("ask",), per_minute=10**9, per_day=10**12)
    served = TestClient(application(analysts, slot=0.001), raise_server_exceptions=False)
    return served, {"Authorization": f"Bearer {text}", "Content-Type": "application/json"}


def send(content: bytes) -> str | None:
    """Ask the service, and check that the status is one for requests; return what it refused."""
    served, headers = client()
    response = served.post("/api/v1/queries", content=content, headers=headers)
    if response.status_code not in (200, 400, 413, 422):
        raise AssertionError(f"status {response.status_code}: {response.text[:200]}")
    return None if response.status_code == 200 else f"{response.status_code} {response.text}"


def _json(read: Callable[[object], object]) -> Callable[[bytes], object]:
    """A door behind json.loads, which refuses other bytes itself."""

    def behind(content: bytes) -> None:
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):
            return
        read(value)

    return behind


def _file(name: str) -> Callable[[bytes], object]:
    return lambda content: fit_people(placed(content, name))


def _text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda content: read(content.decode("utf-8", "replace"))


TARGETS = (
    Target("csv", csv_examples, _file("t.csv"), changed_bytes),
    Target("parquet", parquet_examples, _file("t.parquet"), changed_bytes),
    Target("arrow", arrow_examples, read_arrow, changed_bytes),
    Target("workbook", workbook_examples, _file("t.xlsx"), changed_bytes),
    Target("stata", stata_examples, _file("t.dta"), changed_bytes),
    Target("spss", spss_examples, _file("t.sav"), changed_bytes),
    Target("csr", csr_examples, read_csr),
    Target("model", model_examples, lambda content: dp.load(placed(content, "t.json"))),
    Target("statement", statement_examples, _json(verify_statement)),
    Target(
        "declaration",
        declaration_examples,
        lambda content: TableSchema.from_toml(placed(content, "t.toml")),
        changed_bytes,
    ),
    Target("engine_schema", engine_schema_examples, _text(Schema.from_json)),
    Target("query", query_examples, _json(lambda value: query_from_json(value).compile(SCHEMA, 1000))),
    Target("formula", formula_examples, _text(read_formula), changed_bytes),
    Target("http", query_examples, send),
)
