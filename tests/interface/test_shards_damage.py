"""What can go wrong with shards is found before anything is charged, named, and told without a cell."""

import errno
import hashlib
import io
import json
import os
import re
import stat
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import dpcvx
import dpcvx.noise.gaussian
from dpcvx.data.files import Unreadable
from dpcvx.data.shards import folder as store
from dpcvx.data.shards import open_source, recipe
from dpcvx.errors import ShardsDamaged
from dpcvx.ledger import Ledger

pytestmark = [  # all people have one age and one size, which fits may notice
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:The released:dpcvx.errors.UnrecognisedDataWarning"),
]

N = 200
SECRET = 77.125  # a cell that no message may hold
DECLARED = {"bounds": (0, 100), "classes": (0, 1)}


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(recipe, "SHARD_BYTES", 2**8)


@pytest.fixture
def parquet(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "people.parquet"
    values = np.full(N, SECRET)
    pq.write_table(pa.table({"age": values, "size": values, "ill": rng.integers(0, 2, N)}), path)
    return path


@pytest.fixture
def shards(parquet):
    return dpcvx.from_parquet(parquet, target="ill", **DECLARED)


def quiet(error):
    """Whether neither the message nor what it came from holds a cell."""
    chain, text = error.value, ""
    while chain is not None:
        text += str(chain)
        chain = None if chain.__suppress_context__ else chain.__context__
    return "77.1" not in text


def rewrite_manifest(folder, change):
    """Change a manifest as somebody would who also knows how to make its digest."""
    content = json.loads((folder / "manifest.json").read_text())
    content.pop("digest")
    change(content)
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(content | {"digest": digest}))


def flip(path):
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "one bit": (lambda path: flip(path), "is damaged: its checksum"),
    "cut short": (lambda path: os.truncate(path, path.stat().st_size - 7), "half-written or cut short"),
    "empty": (lambda path: os.truncate(path, 0), "half-written or cut short"),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b"x"), "longer than it was written"),
    "missing": (lambda path: path.unlink(), "is missing"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "000002.values.npy"),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_shard_is_named_before_it_is_used(shards, parquet, how):
    damage, words = DAMAGES[how]
    path = shards.folder / "000002.values.npy"
    damage(path)
    for opening in (
        lambda: dpcvx.open_shards(shards.folder),
        lambda: dpcvx.from_parquet(parquet, target="ill", **DECLARED),
        lambda: open_source(shards.folder, 1, 3),
    ):
        with pytest.raises(dpcvx.ShardsDamaged, match=words) as error:
            opening()
        assert str(path) in str(error.value)
        assert quiet(error)
    assert open_source(shards.folder, 3, 5).n > 0  # other shards are not concerned


@pytest.mark.parametrize("how", ["one bit", "cut short", "missing"])
def test_damage_after_opening_is_found_before_the_charge(shards, tmp_path, how):
    ledger = Ledger(tmp_path / "ledger.db")
    account = ledger.create("people", epsilon=10.0, delta=1e-5)
    DAMAGES[how][0](shards.folder / "000001.targets.npy")
    model = dpcvx.PrivateLogisticRegression(epsilon=1.0, ledger=ledger, account="people")
    with pytest.raises(dpcvx.ShardsDamaged, match=r"000001.targets.npy was changed or removed"):
        model.fit(shards)
    assert list(account.history()) == []
    assert not hasattr(model, "coef_")


def test_a_fit_of_shards_is_charged_once(shards, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    account = ledger.create("people", epsilon=10.0, delta=1e-5)
    dpcvx.PrivateLogisticRegression(epsilon=1.0, ledger=ledger, account="people").fit(shards)
    assert len(list(account.history())) == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'{"format": "dpcvx.data.shards"}', b"\xff\xfe", b"[" * 100_000],
    ids=["empty", "cut", "list", "null", "fields", "bytes", "deep"],
)
def test_a_damaged_manifest_is_named(shards, parquet, content):
    (shards.folder / "manifest.json").write_bytes(content)
    for opening in (
        lambda: dpcvx.open_shards(shards.folder),
        lambda: dpcvx.from_parquet(parquet, target="ill", **DECLARED),
    ):
        with pytest.raises(dpcvx.ShardsDamaged, match=r"manifest.json is damaged or not dpcvx's"):
            opening()


def test_an_edited_manifest_is_found(shards):
    path = shards.folder / "manifest.json"
    path.write_text(path.read_text().replace('"step": 1,', '"step": 2,'))
    with pytest.raises(dpcvx.ShardsDamaged, match=r"manifest.json is damaged"):
        dpcvx.open_shards(shards.folder)
    rewrite_manifest(shards.folder, lambda content: content.update(schema=99))
    with pytest.raises(dpcvx.ShardsDamaged, match="schema 99"):
        dpcvx.open_shards(shards.folder)


def resize(folder, part, array):
    """Replace an array of the first shard, with a digest that fits."""
    file = io.BytesIO()
    np.lib.format.write_array(file, array)
    path = folder / f"000000.{part}.npy"
    path.write_bytes(file.getvalue())
    facts = [len(file.getvalue()), hashlib.sha256(file.getvalue()).hexdigest()]
    rewrite_manifest(folder, lambda content: content["shards"][0]["files"].update({part: facts}))


def test_arrays_of_wrong_shapes_and_types_are_named(shards, tmp_path):
    values = np.load(shards.folder / "000000.values.npy")
    for wrong in (values[:-1], values[:, :1], values.ravel()):
        resize(shards.folder, "values", wrong)
        with pytest.raises(dpcvx.ShardsDamaged, match=r"A shard of .* wrong shapes") as error:
            dpcvx.open_shards(shards.folder)
        assert quiet(error)
    resize(shards.folder, "values", values.astype(np.int64))
    with pytest.raises(dpcvx.ShardsDamaged, match=r"values.npy holds int64, the manifest says int16"):
        dpcvx.open_shards(shards.folder)
    X = sp.random_array((N, 30), density=0.2, rng=np.random.default_rng(0)).tocsr()
    pairs = [(X, np.zeros(N))]
    folder = dpcvx.from_batches(pairs, bounds=(0, 1), classes=(0, 1), store=tmp_path / "csr").folder
    indptr = np.load(folder / "000000.indptr.npy")
    resize(folder, "indptr", indptr[:-1])
    with pytest.raises(dpcvx.ShardsDamaged, match="wrong shapes"):
        dpcvx.open_shards(folder)


def test_no_shards_at_all(tmp_path):
    with pytest.raises(dpcvx.ShardsDamaged, match="does not exist"):
        dpcvx.open_shards(tmp_path / "nowhere")
    with pytest.raises(dpcvx.ShardsDamaged, match="has no manifest"):
        dpcvx.open_shards(tmp_path)


# -- the disk


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "No space left on device; make room and run it again"),
        (errno.EROFS, "Read-only file system; give a store where you may write"),
        (errno.EACCES, "Permission denied; give a store where you may write"),
        (errno.EIO, "check the disk, or give another store"),
    ],
    ids=["full", "read-only", "forbidden", "broken"],
)
@pytest.mark.parametrize("call", ["open", "fsync"])
def test_a_disk_that_refuses_is_named_and_the_run_goes_on_later(parquet, monkeypatch, code, words, call):
    real, calls = getattr(os, call), []

    def refusing(*given, **rest):
        calls.append(given)
        if len(calls) > 9:
            raise OSError(code, os.strerror(code))
        return real(*given, **rest)

    with monkeypatch.context() as full:
        full.setattr(store, "os", SimpleNamespace(**{**vars(os), call: refusing}))
        with pytest.raises(dpcvx.StoreUnavailable, match=words) as error:
            dpcvx.from_parquet(parquet, target="ill", **DECLARED)
    folder = parquet.with_name("people.parquet.shards")
    assert str(folder) in str(error.value)
    assert quiet(error)
    assert not list(folder.glob("*.part"))
    assert dpcvx.from_parquet(parquet, target="ill", **DECLARED).n == N


def test_a_disk_without_room_is_refused_before_the_first_record(parquet, monkeypatch):
    monkeypatch.setattr(recipe.Recipe, "quantised", lambda *_: pytest.fail("a record was read"))
    tiny = SimpleNamespace(f_bavail=1, f_frsize=512)
    monkeypatch.setattr(store, "os", SimpleNamespace(**{**vars(os), "statvfs": lambda _: tiny}))
    with pytest.raises(dpcvx.StoreUnavailable, match=r"need 0.00 GiB, and .* has 0.00 GiB left"):
        dpcvx.from_parquet(parquet, target="ill", **DECLARED)


def test_only_the_owner_may_read_the_files(shards):
    assert stat.S_IMODE(shards.folder.stat().st_mode) == 0o700
    for path in shards.folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_folder_in_use_or_with_other_files_is_refused(parquet, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("text")
    with pytest.raises(dpcvx.StoreUnavailable, match="other file"):
        dpcvx.from_parquet(parquet, target="ill", **DECLARED, store=tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "text"
    (tmp_path / "file").write_text("text")
    with pytest.raises(dpcvx.StoreUnavailable, match=r"File exists|Not a directory"):
        dpcvx.from_parquet(parquet, target="ill", **DECLARED, store=tmp_path / "file")
    append = store.Store.append

    def second(self, rows, arrays):
        monkeypatch.setattr(store.Store, "append", append)
        with pytest.raises(dpcvx.StoreUnavailable, match="another process"):
            dpcvx.from_parquet(parquet, target="ill", **DECLARED)
        append(self, rows, arrays)

    monkeypatch.setattr(store.Store, "append", second)
    assert dpcvx.from_parquet(parquet, target="ill", **DECLARED).n == N


# -- declarations and sources


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"bounds": None}, "bounds of the features are needed"),
        ({"bounds": (1, 0)}, "low < high"),
        ({"bounds": {"age": (0, 1)}}, "bounds are missing for column"),
        ({"classes": None}, "Declare the target"),
        ({"y_bounds": (0, 1)}, "one of them"),
        ({"classes": (0,)}, "at least two classes"),
        ({"classes": "from_y"}, "list of different labels"),
        ({"classes": (1, "1")}, "count as one"),
        ({"classes": None, "y_bounds": (1, 0)}, "low < high"),
        ({"data_norm": -1.0}, "data_norm must be a positive"),
        ({"target": "income"}, "There is no column 'income'. Columns: age, size, ill"),
        ({"target": 3}, "target must be the name"),
        ({"features": "age"}, "must be a list of columns"),
        ({"features": []}, "at least one column"),
        ({"features": ["age", "ill"]}, "target and a feature at once"),
        ({"categories": {"sex": ["f"]}}, "names a column 'sex'"),
    ],
)
def test_wrong_declarations_are_refused_before_a_folder_is_made(parquet, given, words):
    with pytest.raises((ValueError, TypeError), match=words):
        dpcvx.from_parquet(parquet, **{"target": "ill", **DECLARED, **given})
    assert not parquet.with_name("people.parquet.shards").exists()


def test_declarations_are_made_once_and_suit_the_estimator(shards):
    for given in ({"bounds": (0, 100)}, {"classes": (0, 1)}):
        with pytest.raises(dpcvx.Incompatible, match=f"{next(iter(given))} is declared with the data and"):
            dpcvx.PrivateLogisticRegression(epsilon=1.0, **given).fit(shards)
    with pytest.raises(
        dpcvx.Incompatible, match="The data declare classes, which PrivateLasso does not have"
    ):
        dpcvx.PrivateLasso(epsilon=1.0).fit(shards)
    with pytest.raises(dpcvx.Incompatible, match="leave y out"):
        dpcvx.PrivateLogisticRegression(epsilon=1.0).fit(shards, np.zeros(N))


def test_a_text_target_is_a_missing_number(tmp_path):
    """The type of a column may be what a reader inferred from another person's cell."""
    declared = {"target": "y", "bounds": (0, 1), "y_bounds": (0, 1)}
    text, number = (pa.table({"x": [0.5, 0.5], "y": y}) for y in (["tall", "0.25"], [None, 0.25]))
    stored = [dpcvx.from_arrow(t, **declared, store=tmp_path / str(i)) for i, t in enumerate((text, number))]
    files = [sorted(each.folder.glob("*.npy")) for each in stored]
    assert [f.name for f in files[0]] == [f.name for f in files[1]]
    assert [f.read_bytes() for f in files[0]] == [f.read_bytes() for f in files[1]]


def test_sources_that_cannot_be_read_are_named(tmp_path, parquet):
    def opened(path, **rest):
        return dpcvx.from_parquet(path, target="ill", **DECLARED, **rest)

    (tmp_path / "empty.parquet").touch()
    (tmp_path / "text.parquet").write_text(f"age,{SECRET}\n")
    cut = tmp_path / "cut.parquet"
    content = bytearray(parquet.read_bytes())
    content[4:60] = b"\x07" * 56  # the footer is whole, the pages are not
    cut.write_bytes(content)
    half = tmp_path / "half.parquet"
    half.write_bytes(parquet.read_bytes()[: parquet.stat().st_size // 2])
    mend = "damaged or cut short, as an interrupted copy is, .* Copy or write it again"
    (tmp_path / "folder").mkdir()
    for path, words in (
        (tmp_path / "nowhere.parquet", "does not exist"),
        (tmp_path / "empty.parquet", "is empty"),
        (tmp_path / "text.parquet", "cannot be read as Parquet"),
        (cut, mend),
        (half, mend),
        (tmp_path / "folder", "without files that end in .parquet"),
    ):
        with pytest.raises(Unreadable, match=words) as error:
            opened(path)
        assert quiet(error)
        assert str(path) in str(error.value)
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"age": [1], "height": [2], "ill": [1]}), other)
    with pytest.raises(ValueError, match="has other columns than"):
        opened([parquet, other])
    none = tmp_path / "none.parquet"
    pq.write_table(pq.read_table(parquet).slice(0, 0), none)
    with pytest.raises(ValueError, match="no records"):
        opened(none)


def test_a_csv_file_without_a_header_does_not_show_its_first_record(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(f"{SECRET},1\n{SECRET},0\n")
    with pytest.raises(ValueError, match="must be its header") as error:
        dpcvx.from_csv(path, target="ill", **DECLARED)
    assert quiet(error)
    (tmp_path / "more.csv").write_text(f"age,ill\n{SECRET},0\n")
    with pytest.raises(ValueError, match="another header") as error:
        dpcvx.from_csv([tmp_path / "more.csv", path], target="ill", **DECLARED)
    assert quiet(error)
    with pytest.raises(ValueError, match="categories name 'sex'"):
        dpcvx.from_csv(tmp_path / "more.csv", target="ill", categories={"sex": ["f"]}, **DECLARED)


def test_batches_that_do_not_fit_together_are_refused(tmp_path):
    X, y = np.ones((4, 2)), np.zeros(4)

    def made(batches):
        return dpcvx.from_batches(batches, **DECLARED, store=tmp_path / "s")

    for batches, words in (
        ([], "There is no batch"),
        ([X], "must be a pair"),
        ([(X, y[:3])], "X has 4 rows but y has 3"),
        ([(X, y), (X[:, :1], y)], "other columns than the first"),
        ([(X, y), (sp.csr_array(X), y)], "other columns than the first"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            made(iter(batches))
        for path in (tmp_path / "s").glob("*"):
            path.unlink()
    with pytest.raises(TypeError, match="from_arrow takes"):
        dpcvx.from_arrow([X], target="y", **DECLARED, store=tmp_path / "s")


def test_a_bar_is_shown_on_a_terminal_only(parquet, monkeypatch, capfd, tmp_path):
    for terminal, verbose, shown in (("1", 1, True), ("1", 0, False), ("0", 1, False)):
        monkeypatch.setenv("TTY_COMPATIBLE", terminal)
        folder = tmp_path / f"{terminal}{verbose}"
        dpcvx.from_parquet(parquet, target="ill", **DECLARED, store=folder, verbose=verbose)
        out, err = capfd.readouterr()
        assert out == ""
        assert ("quantising" in err) == shown


def test_a_damaged_shard_does_not_tell_how_many_cells_are_filled(tmp_path):
    from scipy.sparse import csr_array

    dpcvx.from_batches(
        [(csr_array(np.eye(30)[:, :25]), np.tile([0, 1], 15))],
        bounds=(0.0, 1.0),
        classes=(0, 1),
        store=tmp_path / "shards",
        verbose=0,
    )
    path = min((tmp_path / "shards").glob("*.indices.npy"))
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ShardsDamaged, match="cut short") as caught:
        open_source(tmp_path / "shards")
    assert str(size) not in re.findall(r"\d+", str(caught.value).replace(str(path), ""))
