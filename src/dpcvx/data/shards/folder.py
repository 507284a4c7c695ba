"""A folder of shards: files that are written whole or not at all, and are checked before they are read.

Each shard is a few arrays in NumPy's format; ``manifest.json`` says what they are and what their bytes must
hash to. A file gets its name only after its last byte is on the disk, so an interruption leaves whole shards
and at most one file that nobody looks at. Files hold private records: only their owner may read them.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.data.threads import cores
from dpcvx.errors import ShardsDamaged, StoreUnavailable
from dpcvx.whole_files import sync_folder
from dpcvx.words import quantity

__all__ = ["Manifest", "Shard", "Store"]

FORMAT, SCHEMA = "dpcvx.shards", 1
MANIFEST, LOCK, UNFINISHED = "manifest.json", "lock", ".part"
ALONE = 0o600
AGAIN = "delete the folder and make the shards again from their source"


@dataclass(frozen=True)
class Shard:
    """One shard: how many records it has, and the size and SHA-256 of each of its files."""

    rows: int
    files: Mapping[str, tuple[int, str]]


@dataclass(frozen=True)
class Manifest:
    """Content of a folder of shards.

    It is as private as the records: sizes and digests of files depend on single cells.
    """

    # where the records came from: kind, files with size and time, columns
    source: Mapping[str, Any]
    names: tuple[str, ...] | None  # raw columns, where they have names
    columns: int  # number of raw columns
    compressed: bool  # whether the records themselves came as sparse matrices
    declarations: Mapping[str, Any]  # parameters of an estimator that the records were quantised with
    parts: Mapping[str, str]  # type of each array of a shard, by its name
    width: int  # number of features of a stored row
    limits: tuple[int, int]  # largest stored integer and largest sum of squares of a row, in units of 2^-14
    step: int  # unit of the stored integers, in units of 2^-14
    rows: int  # records of every shard but the last
    shards: tuple[Shard, ...] = ()
    complete: bool = False  # whether all records are there
    # number of persons, times the rows kept of each, where records have persons; their number is then private
    units: int | None = None

    @property
    def n(self) -> int:
        """Records so far."""
        return sum(shard.rows for shard in self.shards)


class Store:
    """A folder of shards."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Open a folder that was written before; the shards themselves are not read yet."""
        path = folder / MANIFEST
        if not path.is_file():
            what = "has no manifest.json" if folder.is_dir() else "does not exist"
            raise ShardsDamaged(f"{folder} {what}, so it holds no shards: give the folder of from_parquet.")
        with _reaching(folder):
            content = path.read_bytes()
        return cls(folder, _parsed(content, path))

    @classmethod
    def create(cls, folder: Path, manifest: Manifest) -> Store:
        """Make an empty folder, or use one that is there."""
        with _reaching(folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            known = (LOCK, MANIFEST + UNFINISHED)
            if strange := [path.name for path in folder.iterdir() if path.name not in known]:
                raise StoreUnavailable(
                    f"{folder} holds {len(strange)} other file(s) and no manifest.json: give a folder "
                    "that is empty or does not exist."
                )
        store = cls(folder, manifest)
        store._save()
        return store

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer of the folder."""
        try:
            import fcntl
        except ImportError:  # a system without these locks; writes are whole there too
            yield
            return
        with _reaching(self.folder):
            lock = os.open(self.folder / LOCK, os.O_CREAT | os.O_RDWR, ALONE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with _reaching(self.folder):
                for left in self.folder.glob(f"*{UNFINISHED}"):
                    left.unlink()
            yield
        except BlockingIOError:
            raise StoreUnavailable(
                f"{self.folder} is being written by another process: wait for it, or give another store."
            ) from None
        finally:
            os.close(lock)

    def append(self, rows: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write one more shard and say so in the manifest."""
        index = len(self.manifest.shards)
        with _reaching(self.folder):
            files = {
                part: _write(self._path(index, part), partial(np.lib.format.write_array, array=array))
                for part, array in arrays.items()
            }
        self.manifest = replace(self.manifest, shards=(*self.manifest.shards, Shard(rows, files)))
        self._save()

    def drop_last(self) -> Shard:
        """Remove the last shard from the manifest, and return its entry."""
        *kept, last = self.manifest.shards
        self.manifest = replace(self.manifest, shards=tuple(kept))
        return last

    def finish(self) -> None:
        """Say that all records are there."""
        self.manifest = replace(self.manifest, complete=True)
        self._save()

    def require_complete(self) -> None:
        """Refuse to read a folder whose writing was interrupted."""
        if not self.manifest.complete:
            done = f", {quantity(self.manifest.n, 'record')} so far" if self.manifest.units is None else ""
            raise ShardsDamaged(
                f"{self.folder} is half-written{done}: run the call that wrote it again, with the same "
                "declarations, and it continues where it stopped."
            )

    def require_room(self, size: int) -> None:
        """Refuse to write shards for which the disk has no room."""
        with _reaching(self.folder):
            facts = os.statvfs(self.folder)
        free = facts.f_bavail * facts.f_frsize
        if size > free:
            needed = f"{size / 2**30:.2f} GiB" if self.manifest.units is None else "more room than there is"
            raise StoreUnavailable(
                f"The shards need {needed}, and {self.folder} has {free / 2**30:.2f} GiB left: "
                "free some space, or give a store on another disk."
            )

    def verify(self, first: int, last: int) -> None:
        """Read the files of shards first..last and compare them with the manifest, several at a time."""
        wanted = [
            (self._path(index, part), *facts)
            for index in range(first, last)
            for part, facts in self.manifest.shards[index].files.items()
        ]
        with ThreadPoolExecutor(max_workers=cores()) as pool:
            for complaint in pool.map(_complaint, wanted):
                if complaint:
                    raise ShardsDamaged(complaint)

    def unchanged(self) -> Callable[[], None]:
        """Return a quick check, by size and time, that the files are still what they are now."""
        paths = [
            self._path(index, part)
            for index, shard in enumerate(self.manifest.shards)
            for part in shard.files
        ]
        known = [_stamp(path) for path in paths]

        def check() -> None:
            for path, stamp in zip(paths, known, strict=True):
                if _stamp(path) != stamp:
                    raise ShardsDamaged(f"{path} was changed or removed since it was opened: open it again.")

        return check

    def arrays(self, index: int) -> dict[str, NDArray[Any]]:
        """Arrays of one shard, mapped and not read.

        They are mapped privately and writable, so that compiled code is the one for arrays in memory; nobody
        writes to them.
        """
        return {part: self._mapped(index, part) for part in self.manifest.parts}

    def _mapped(self, index: int, part: str) -> NDArray[Any]:
        path, kind = self._path(index, part), self.manifest.parts[part]
        try:
            mapped = np.load(path, mmap_mode="c", allow_pickle=False)
        except (OSError, ValueError, EOFError) as problem:
            why = problem.strerror if isinstance(problem, OSError) else "it is no array of NumPy's format"
            raise ShardsDamaged(f"{path} cannot be mapped: {why}. Check the disk, or {AGAIN}.") from None
        if mapped.dtype != np.dtype(kind):
            raise ShardsDamaged(f"{path} holds {mapped.dtype}, the manifest says {kind}: {AGAIN}.")
        return np.asarray(mapped)

    def _path(self, index: int, part: str) -> Path:
        return self.folder / f"{index:06d}.{part}.npy"

    def _save(self) -> None:
        manifest = self.manifest
        content = {
            "format": FORMAT,
            "schema": SCHEMA,
            **{name: getattr(manifest, name) for name in FIELDS},
            "shards": [{"rows": shard.rows, "files": dict(shard.files)} for shard in manifest.shards],
        }
        text = json.dumps(content | {"digest": _digest(content)}, ensure_ascii=False)
        with _reaching(self.folder):
            _write(self.folder / MANIFEST, lambda file: file.write(text.encode()))


FIELDS = tuple(name for name in Manifest.__dataclass_fields__ if name != "shards")


class _HashingFile:
    """A file that remembers the hash and the number of what was written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.hash, self.size = file, hashlib.sha256(), 0

    def write(self, data: Any) -> int:
        self.hash.update(data)
        self.size += len(data)
        return self._file.write(data)


def _write(path: Path, write: Callable[[Any], object]) -> tuple[int, str]:
    """Write a file whole or not at all, readable by its owner alone; return its size and hash."""
    unfinished = path.with_name(path.name + UNFINISHED)
    try:
        with os.fdopen(os.open(unfinished, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, ALONE), "wb") as file:
            hashed = _HashingFile(file)
            write(hashed)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    return hashed.size, hashed.hash.hexdigest()


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_size, facts.st_mtime_ns


def _complaint(wanted: tuple[Path, int, str]) -> str:
    """Describe what is wrong with a file, if anything."""
    path, size, digest = wanted
    try:
        found = path.stat().st_size
        if found != size:
            how = "half-written or cut short" if found < size else "longer than it was written"
            # How many bytes there should be tells how many cells of compressed records are not 0.
            return f"{path} is {how}. Restore it, or {AGAIN}."
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                return (
                    f"{path} is damaged: its checksum is not the one in the manifest. Restore it, or {AGAIN}."
                )
    except FileNotFoundError:
        return f"{path} is missing. Restore it, or {AGAIN}."
    except OSError as problem:
        return f"{path} cannot be read: {problem.strerror}."
    return ""


@contextmanager
def _reaching(folder: Path) -> Iterator[None]:
    """Turn errors of the file system into `StoreUnavailable`, with advice."""
    try:
        yield
    except OSError as problem:
        remedies = {
            errno.ENOSPC: "make room and run it again: whole shards are kept, and it goes on where it was",
            errno.EDQUOT: "make room and run it again: whole shards are kept, and it goes on where it was",
            errno.EROFS: "give a store where you may write",
            errno.EACCES: "give a store where you may write",
            errno.EPERM: "give a store where you may write",
        }
        remedy = remedies.get(problem.errno or 0, "check the disk, or give another store")
        raise StoreUnavailable(
            f"The shards in {folder} cannot be used: {problem.strerror}; {remedy}."
        ) from None


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _parsed(content: bytes, path: Path) -> Manifest:
    try:
        fields = json.loads(content)
        digest = fields.pop("digest")
        if fields["format"] != FORMAT or _digest(fields) != digest:
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ShardsDamaged(f"{path} is damaged or not dpcvx's: restore it, or {AGAIN}.") from None
    if fields["schema"] != SCHEMA:
        raise ShardsDamaged(
            f"{path} has schema {fields['schema']!r}; this version of dpcvx reads schema {SCHEMA}: {AGAIN}."
        )
    shards = tuple(
        Shard(shard["rows"], {part: tuple(facts) for part, facts in shard["files"].items()})
        for shard in fields["shards"]
    )
    known = {name: fields[name] for name in FIELDS if name in fields}  # version 0.1 has no units
    known |= {name: _tuple(known[name]) for name in ("names", "limits")}
    return Manifest(shards=shards, **known)


def _tuple(given: Any) -> Any:
    return None if given is None else tuple(given)
