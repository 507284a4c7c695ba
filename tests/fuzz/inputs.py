"""Inputs made from examples: bytes that are changed here and there, and JSON whose parts are exchanged."""

import copy
import json
import random
from collections.abc import Iterator

# What nobody expects in a place where a number, a name or a list should be.
HOSTILE = [
    None,
    True,
    -1,
    0,
    10**30,
    -(2**63),
    1e308,
    -1e-320,
    0.5,
    "",
    "nan",
    "1e999",
    "\u0000",
    "x" * 3000,
    "__import__('os').system('true')",
    "{0.__class__}",
    "a*" * 30 + "a",
    [],
    [[]],
    {},
    {"": None},
    [1] * 500,
    ["x"] * 40,
]
TOKENS = [
    b"\n",
    b"\r",
    b"\x00",
    b'"',
    b",",
    b";",
    b"nan",
    b"-inf",
    b"1e400",
    b"0x1p3",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xf0\x9f\x98\x80",
    b"true",
    b"{",
    b"[" * 200,
    b"]",
    b"-",
    b"=",
    b"~",
    b"1_0",
    b"2020-01-01",
    b"99999999999999999999",
]


def changed_bytes(content: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """Return the content after a few changes: bits, cut or repeated pieces, tokens, pieces of others."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        start = rng.randrange(len(data) + 1)
        stop = min(len(data), start + rng.choice((1, 2, 8, 64)))
        match rng.randrange(6):
            case 0 if start < len(data):
                data[start] ^= 1 << rng.randrange(8)
            case 1:
                del data[start:stop]
            case 2:
                data[start:start] = data[start:stop] * rng.choice((1, 3, 50))
            case 3:
                data[start:stop] = rng.choice(TOKENS)
            case 4:
                data[start:start] = rng.choice(TOKENS)
            case _:
                other = rng.choice(others)
                place = rng.randrange(len(other) + 1)
                data[start:stop] = other[place : place + rng.choice((4, 32, 256))]
    return bytes(data[:100_000])


def changed_json(content: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """Return JSON with exchanged, removed, added or renamed parts; sometimes with changed bytes."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return changed_bytes(content, others, rng)
    if rng.random() < 0.1:
        return changed_bytes(content, others, rng)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            value = copy.deepcopy(rng.choice(HOSTILE))
            continue
        parent, key = rng.choice(places)
        new = copy.deepcopy(rng.choice(HOSTILE)) if rng.random() < 0.7 else _elsewhere(others, rng)
        match rng.randrange(5):
            case 0 if isinstance(parent, dict):
                parent[rng.choice(("extra", "", str(key) + "x"))] = parent.pop(key)
            case 1:
                del parent[key]
            case 2 if isinstance(parent, list):
                parent.insert(key, new)
            case 3 if isinstance(parent[key], int | float) and not isinstance(parent[key], bool):
                parent[key] = rng.choice(
                    (-parent[key], parent[key] * 2, parent[key] + 1, parent[key] * 1e-300)
                )
            case _:
                parent[key] = new
    return json.dumps(value).encode()


def _places(value: object, depth: int = 0) -> Iterator[tuple[object, object]]:
    if depth > 60:
        return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield value, key
        yield from _places(part, depth + 1)


def _elsewhere(others: list[bytes], rng: random.Random) -> object:
    """A part of another input."""
    try:
        value = json.loads(rng.choice(others))
    except (ValueError, RecursionError):
        return None
    places = list(_places(value))
    if not places:
        return value
    parent, key = rng.choice(places)
    return json.loads(json.dumps(parent[key]))
