"""Two neighbouring tables take one public path through every entrance, whatever types a reader inferred.

The table "reader x hostile cell x entrance": one record is replaced by one whose cells all hold a hostile
text. Errors, warnings, plan, statement, ledger entry, shapes, types and sizes of stored files, and what a
command prints must be equal byte for byte; the stored records must differ in the replaced one only.
"""

import contextlib
import io
import json
import re
import warnings
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import dpcvx
from dpcvx.cli import app
from dpcvx.data.dataset import InMemory
from dpcvx.estimators import progress
from dpcvx.estimators.linear_model import declare_fit
from dpcvx.noise import SeededGenerator
from dpcvx.service.start import ServiceSettings, run
from foreign_files import WRITERS
from readers import CELLS, READERS, csv_bytes

N, REPLACED = 40, 17
HEADER = ["amount", "flag", "sick", "sex", "day", "label", "number"]
FEATURES = HEADER[:5]
BOUNDS = {"amount": (0, 10)}
CATEGORIES = {"flag": [0, 1], "sick": [True, False], "sex": ["f", "m"], "day": ["2020-01-01", "2020-01-02"]}
ROWS = [
    [
        f"{i / 4:g}",
        str(i % 2),
        ["true", "false"][i % 3 == 0],
        "fm"[i % 2],
        f"2020-01-0{1 + i % 2}",
        str(i % 2),
        f"{i / 5:g}",
    ]
    for i in range(N)
]
PUBLIC = {
    "epsilon": 1.0,
    "delta": 1e-5,
    "bounds": BOUNDS,
    "categories": CATEGORIES,
    "random_state": 1,
    "n_iter": 3,
}
LABELS, RANGE = {"classes": (0, 1)}, {"y_bounds": (0, 10)}


def content(cell):
    """The file, with every cell of one record replaced; None leaves it as it is."""
    rows = ROWS if cell is None else [*ROWS[:REPLACED], [cell] * len(HEADER), *ROWS[REPLACED + 1 :]]
    return csv_bytes(HEADER, rows)


def split(table, target):
    return (table[FEATURES] if hasattr(table, "iloc") else table.select(FEATURES)), table[target]


def fit(model, target):
    """A fit charged to nobody: plan, statement and fitted shapes; quantised rows and encoded targets."""

    def enter(table, folder):
        X, y = split(table, target)
        model.fit(X, y)
        made = declare_fit(model, InMemory(X, y), N)
        quantiser = dpcvx.data.Quantiser(made.plan.problem.bounds, made.columns.center, made.columns.scale)
        rows, targets = made.columns.rows(InMemory(X, y).table, quantiser).values, made.target.encode(y)
        shown = [
            str(model.plan_),
            json.dumps(model.privacy_statement_.to_dict()),
            repr(model.levels_),
            model.formula_.model,
        ]
        shapes = [(array.shape, array.dtype) for array in (model.coef_, model.predict(X), rows, targets)]
        return (shown, shapes), [rows, targets]

    return enter


def charged(table, folder):
    ledger = dpcvx.Ledger(folder / "ledger.db")
    account = ledger.create("people", epsilon=2.0, delta=1e-4)
    X, y = split(table, "label")
    model = dpcvx.PrivateLogisticRegression(
        **{**PUBLIC, **LABELS, "random_state": None}, ledger=ledger, account="people"
    )
    model.fit(X, y)
    return [(entry.purpose, entry.event, entry.used) for entry in account.history()], []


def scored(table, folder):
    X, y = split(table, "label")
    rng = np.random.default_rng(0)
    plain = dpcvx.PrivateLogisticRegression(epsilon=1.0, bounds=(0, 1), **LABELS, random_state=1)
    model = plain.set_params(**{**PUBLIC, **LABELS}).fit(*split(READERS["Arrow"](content(None)), "label"))
    score = dpcvx.private_score(model, X, y, epsilon=1.0, random_state=int(rng.integers(9)))
    return [
        type(score).__name__,
        len(model.predict(X)),
        json.dumps(score.statement.to_dict(), default=str),
    ], []


SCHEMA = dpcvx.Schema(
    (
        *(dpcvx.Attribute(name, tuple(levels), levels[-1]) for name, levels in CATEGORIES.items()),
        dpcvx.Binned("amount", (0, 5, 10), 2.5),
    )
)


def engine(table, folder):
    made = dpcvx.QueryEngine(
        SCHEMA, table, dpcvx.Budget(1.0, 1e-5), method="histogram", rng=SeededGenerator(1)
    )
    return [repr(made.remaining), made.comparisons, json.dumps(made.statement().to_dict())], [
        dpcvx.queries.Universe(SCHEMA).encode(table)
    ]


def shards(table, folder):
    """Shards of record batches: names, sizes and types of the files; the stored integers."""
    X, y = split(table, "label")
    store = folder / "shards"
    declared = {"bounds": BOUNDS, "categories": CATEGORIES, **LABELS}
    made = dpcvx.from_batches([(X, y)], **declared, store=store, verbose=0)
    return files_of(store, made)


def files_of(store, made):
    manifest = json.loads((store / "manifest.json").read_text())
    for shard in manifest["shards"]:
        for facts in shard["files"].values():
            facts[1] = None  # the digest
    manifest.pop("digest", None)
    for file in manifest["source"].get("files", []):
        file.update(path=None, bytes=None, mtime_ns=None)
    arrays = {path.name: np.load(path) for path in sorted(store.glob("*.npy"))}
    sizes = {path.name: path.stat().st_size for path in sorted(store.glob("*.npy"))}
    shapes = {name: (array.shape, array.dtype) for name, array in arrays.items()}
    model = dpcvx.PrivateLogisticRegression(epsilon=1.0, delta=1e-5, random_state=1, n_iter=3).fit(made)
    shown = [str(model.plan_), json.dumps(model.privacy_statement_.to_dict())]
    # Counts of recognised cells are sums over all rows: tests/privacy/test_counts.py
    stored = {name: array for name, array in arrays.items() if "recognised" not in name}
    rows = [array.T if "targets" in name else array for name, array in stored.items()]
    return (manifest, sizes, shapes, shown), rows


REGRESSION = [
    dpcvx.PrivateLinearRegression,
    dpcvx.PrivateLasso,
    dpcvx.PrivateHuberRegressor,
    dpcvx.PrivateQuantileRegressor,
    dpcvx.PrivateLowRankRegression,
]
CLASSIFICATION = [dpcvx.PrivateLogisticRegression, dpcvx.PrivateLinearSVC]
ENTRANCES = {
    **{kind.__name__: fit(kind(**PUBLIC, **RANGE), "number") for kind in REGRESSION},
    **{kind.__name__: fit(kind(**PUBLIC, **LABELS), "label") for kind in CLASSIFICATION},
    "standardised": fit(
        dpcvx.PrivateLinearRegression(**{**PUBLIC, "n_iter": None}, **RANGE, standardize=True), "number"
    ),
    "one pair of bounds": fit(
        dpcvx.PrivateLogisticRegression(**{**PUBLIC, "bounds": (0, 1), "categories": None}, **LABELS), "label"
    ),
    "ledger": charged,
    "private_score": scored,
    "engine": engine,
    "shards": shards,
}


# -- tables in files, workers and commands

FIT = "fit {} --target label --model logistic --epsilon 1 --delta 1e-5 --bounds b.toml --out m.json --seed 1"
DECLARED = """[bounds]
amount = [0, 10]
[categories]
flag = [0, 1]
sick = ["true", "false"]
sex = ["f", "m"]
day = ["2020-01-01", "2020-01-02"]
[target]
classes = [0, 1]
"""


def as_file(table, folder):
    """The table as a file: bytes are a CSV file, others are written as Parquet by their own library."""
    if callable(table):
        return table(folder)
    path = folder / ("people.csv" if isinstance(table, bytes) else "people.parquet")
    if isinstance(table, bytes):
        path.write_bytes(table)
    elif hasattr(table, "to_parquet"):
        table.to_parquet(path)
    elif hasattr(table, "write_parquet"):
        table.write_parquet(path)
    else:
        pq.write_table(table, path)
    return path


def command(table, folder):
    """``dpcvx fit`` and ``dpcvx predict``: everything that they print, but for released coefficients."""
    path = as_file(table, folder)
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "FIRST", 1000.0)  # seconds: how busy the machine is decides on progress
        (folder / "b.toml").write_text(DECLARED)
        results = [
            CliRunner().invoke(app, words.format(path).split())
            for words in (FIT, "predict m.json {} --out p.csv")
        ]
        lines = len((folder / "p.csv").read_text().splitlines())
        model = dpcvx.load(folder / "m.json")
    released = str(model.summary())
    masked = re.sub(r" +-?[\d.]+(e[+-]\d+)?$", " #", released, flags=re.MULTILINE)
    assert released in results[0].stdout
    shown = [(each.exit_code, each.stdout.replace(released, masked), each.stderr) for each in results]
    return (shown, lines, model.coef_.shape, json.dumps(model.privacy_statement_.to_dict())), []


def served(table, folder):
    """The start of ``dpcvx serve``: what it prints, and what the engine paid."""
    schema = folder / "schema.toml"
    lines = [
        f"[attributes.{a.name}]\nlevels = {json.dumps(list(a.levels))}\nother = {json.dumps(a.other)}"
        for a in SCHEMA.attributes[:-1]
    ]
    schema.write_text("\n".join([*lines, "[attributes.amount]\nedges = [0, 5, 10]\nmissing = 2.5"]))
    ledger = folder / "ledger.db"
    settings = ServiceSettings(
        as_file(table, folder), schema, 1.0, 1e-5, str(ledger), None, "people", "127.0.0.1", 0, 1.0
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("uvicorn.Server.run", lambda *_, **__: None)
        run(settings)
    entries = dpcvx.Ledger(ledger).account("people").history()
    return [(entry.purpose, entry.event, entry.used) for entry in entries], []


def shard_file(table, folder):
    path = as_file(table, folder)
    make = dpcvx.from_csv if isinstance(table, bytes) else dpcvx.from_parquet
    declared = {"bounds": BOUNDS, "categories": CATEGORIES, **LABELS, "features": FEATURES}
    made = make(path, target="label", **declared, store=folder / "shards", verbose=0)
    return files_of(folder / "shards", made)


def on_dask(table, folder):
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    sizes = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with LocalCluster(**sizes, dashboard_address=None, silence_logs=50) as cluster, Client(cluster):
        frame = dd.from_pandas(table[[*FEATURES, "label"]], npartitions=2)
        data = dpcvx.from_dask(frame, target="label")
        model = dpcvx.PrivateLogisticRegression(**PUBLIC, **LABELS).fit(data)
    return [str(model.plan_), json.dumps(model.privacy_statement_.to_dict()), model.coef_.shape], []


FILES = {
    "CSV": lambda content: content,
    "Parquet by pandas": READERS["pandas"],
    "Parquet by pandas on Arrow": READERS["pandas, Arrow throughout"],
    "Parquet by polars": READERS["polars"],
    "Parquet by Arrow": READERS["Arrow"],
}
FOREIGN = {
    name: lambda content, write=write, ending=ending: partial(write_foreign, write, ending, content)
    for name, (write, ending) in WRITERS.items()
}


def write_foreign(write, ending, content, folder):
    path = folder / f"people{ending}"
    write(content, path)
    return path


FILE_ENTRANCES = {"command line": command, "service": served, "shards of files": shard_file}
FEW = (
    "abc",
    "",
    "NA",
    "1.5",
    "true",
    "2020-01-01",
    "2020-01-01T00:00:00Z",
    "12:34",
    "1e400",
    "0x10",
    "1_000",
)


def observed(enter, table, folder, errors):
    """What an entrance shows of a table, and its private side."""
    with warnings.catch_warnings(record=True) as heard, contextlib.redirect_stderr(io.StringIO()) as said:
        warnings.simplefilter("always")
        try:
            public, private = enter(table, folder)
        except errors as error:
            public, private = f"{type(error).__name__}: {error}", []
    warned = [f"{each.category.__name__}: {each.message}" for each in heard]
    return repr((public, warned, said.getvalue())), private


def same(one, other):
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def compare(enter, read, cells, folder):
    """Compare the file with its neighbours; those that a reader itself refuses enter nowhere."""
    expected, private = None, []
    for place, cell in enumerate((None, *cells)):
        here = folder / f"table_{place:03}"
        here.mkdir()
        try:
            table = read(content(cell))
        except OverflowError:  # pandas' own, of integers beyond 64 bits on Arrow
            assert cell == "9" * 23
            continue
        shown, records = observed(enter, table, here, () if cell is None else Exception)
        shown = shown.replace(str(here), "")
        if cell is None:
            expected, private = shown, records
            continue
        assert shown == expected, cell
        for one, other in zip(private, records, strict=True):
            changed = [place for place in range(N) if not same(one[place], other[place])]
            assert set(changed) <= {REPLACED}, cell
            assert len(one) == len(other) == N


def test_the_table_has_thousands_of_pairs():
    pairs = len(READERS) * len(CELLS) * len(ENTRANCES) + (2 * len(FEW) + 3) * len(FILES) + 4 * len(FEW)
    print(f"{len(READERS)} readers, {len(CELLS)} cells, {len(ENTRANCES)} entrances, and files: {pairs} pairs")
    assert pairs > 17_000


@pytest.mark.parametrize("reader", ["pandas", "polars", "Arrow"])
@pytest.mark.parametrize("entrance", ["PrivateLinearRegression", "PrivateLogisticRegression", "shards"])
def test_neighbours_take_one_public_path(entrance, reader, tmp_path):
    compare(ENTRANCES[entrance], READERS[reader], ["abc", "", "2020-01-01"], tmp_path)


def test_neighbours_take_one_public_path_into_the_engine(tmp_path):
    compare(engine, READERS["Arrow"], ["abc"], tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("entrance", ENTRANCES)
def test_neighbours_take_one_public_path_with_every_reader(entrance, reader, tmp_path):
    compare(ENTRANCES[entrance], READERS[reader], FEW[:2] if entrance == "engine" else FEW[:7], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("entrance", ENTRANCES)
def test_neighbours_take_one_public_path_with_every_cell(entrance, reader, tmp_path):
    compare(ENTRANCES[entrance], READERS[reader], CELLS, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("entrance", FILE_ENTRANCES)
def test_neighbouring_files_take_one_public_path(entrance, file, tmp_path):
    compare(FILE_ENTRANCES[entrance], FILES[file], FEW[:3] if entrance == "service" else FEW, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("file", FOREIGN)
@pytest.mark.parametrize("entrance", ["command line", "service"])
def test_neighbouring_files_of_other_programs_take_one_public_path(entrance, file, tmp_path):
    pytest.importorskip("pyreadstat")
    pytest.importorskip("openpyxl")
    compare(FILE_ENTRANCES[entrance], FOREIGN[file], FEW[:3] if entrance == "service" else FEW, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("reader", ["pandas", "pandas on Arrow", "pandas nullable", "lists of text"])
def test_neighbours_take_one_public_path_to_workers(reader, tmp_path):
    compare(on_dask, READERS[reader], FEW, tmp_path)
