"""States that a power cut may leave on a disk, from a log of all calls that changed files.

A file keeps what was written before its last sync. Each later write is kept or lost by itself, in sectors of
512 bytes and in any order. Names (created, renamed and removed files) are kept in the order in which they
were made, up to some point at or after the last sync of their folder, as on file systems with a journal.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

SECTOR = 512
HEADER = struct.Struct("=cqqqq")


@dataclass(frozen=True)
class Call:
    """One call: w(rite), t(runcate), s(ync), c(reate), r(ename), u(nlink) or m(ake folder)."""

    kind: str
    inode: int
    offset: int  # of a write; length of a truncation
    path: str
    data: bytes  # of a write; new path of a renaming


def read_log(path):
    """Return the calls of a log in order."""
    content, place, calls = Path(path).read_bytes(), 0, []
    while place < len(content):
        kind, inode, offset, length, size = HEADER.unpack_from(content, place)
        place += HEADER.size
        name, data = content[place : place + length], content[place + length : place + length + size]
        place += length + size
        calls.append(Call(kind.decode(), inode, offset, name.decode(), data))
    return calls


class DiskModel:
    """Files below a folder: what is certainly on the disk, and what may be."""

    def __init__(self, folder):
        """Begin with the files that are there, all of them on the disk."""
        self.folder = str(folder)
        self.names = {}  # path: number of a file, None for a folder
        self.numbers = {}  # inode: number of the file that has it now; inodes are used again
        self.contents = {}  # number of a file: bytes on the disk
        self.changes = {}  # number of a file: changes since its last sync
        self.moves = []  # changes of names since a sync of their folder
        for path in sorted(Path(folder).rglob("*")):
            if path.is_dir():
                self.names[str(path)] = None
            else:
                number = self._new(path.stat().st_ino)
                self.names[str(path)], self.contents[number] = number, path.read_bytes()

    def _new(self, inode):
        self.numbers[inode] = number = len(self.contents)
        self.contents[number], self.changes[number] = b"", []
        return number

    def apply(self, call):
        """Follow one call."""
        match call.kind:
            case "w" | "t":
                self.changes[self.numbers[call.inode]].append(call)
            case "s" if call.path in self._folders():
                here = [
                    k for k, (move, _) in enumerate(self.moves) if str(Path(move.path).parent) == call.path
                ]
                upto = here[-1] + 1 if here else 0  # earlier ones of other folders are in the same journal
                for move in self.moves[:upto]:
                    _move(self.names, *move)
                self.moves = self.moves[upto:]
            case "s":
                number = self.numbers[call.inode]
                for change in self.changes[number]:
                    self.contents[number] = _changed(self.contents[number], change, None)
                self.changes[number] = []
            case _:
                number = self._new(call.inode) if call.kind == "c" else None
                self.moves.append((call, number))

    def _folders(self):
        made = {move.path for move, _ in self.moves if move.kind == "m"}
        return {self.folder, *made, *(path for path, number in self.names.items() if number is None)}

    def after_cut(self, rng, kept):
        """Return paths and contents after a power cut.

        `kept`: chance that a change that was not synced is on the disk: 0, 1, or between, where each sector
        has its own luck.
        """
        names = dict(self.names)
        upto = len(self.moves) if kept == 1 else 0 if kept == 0 else rng.randint(0, len(self.moves))
        for move in self.moves[:upto]:
            _move(names, *move)
        found = {}
        for path, number in names.items():
            content = None if number is None else self.contents[number]
            for change in self.changes.get(number, []):
                if kept == 1 or (kept and (change.kind == "w" or rng.random() < kept)):
                    content = _changed(content, change, None if kept == 1 else (rng, kept))
            found[path] = content
        return found


def _move(names, move, number):
    match move.kind:
        case "c":
            names[move.path] = number
        case "m":
            names[move.path] = None
        case "u":
            names.pop(move.path, None)
        case "r":
            new, old = move.data.decode(), move.path
            for path in [path for path in names if path == old or path.startswith(f"{old}/")]:
                names[new + path[len(old) :]] = names.pop(path)


def _changed(content, change, luck):
    """Content after a change; with `luck`, a generator and a chance, after a part of its sectors."""
    if change.kind == "t":
        return content[: change.offset].ljust(change.offset, b"\0")
    changed, start, end = bytearray(content), change.offset, change.offset + len(change.data)
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        if luck is None or luck[0].random() < luck[1]:
            changed.extend(bytes(max(0, stop - len(changed))))
            changed[start:stop] = change.data[start - change.offset : stop - change.offset]
        start = stop
    return bytes(changed)


def restore(found, folder, target):
    """Write paths and contents of one folder into another, empty one."""
    for path, content in sorted(found.items()):
        place = Path(target) / Path(path).relative_to(folder)
        if content is None:
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
