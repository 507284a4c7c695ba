"""Run tests with one function changed, in children of a process that has collected them all.

A child replaces the code of the function in memory, so that nothing is imported again: a change takes the
time of its tests. Changes of constants, class bodies and compiled kernels need `Sandbox`, and so do changes
that seem to be missed: some functions run when their module is imported.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import resource
import signal
import sys
import tempfile
import time
import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from _pytest.warnings import catch_warnings_for_item
from sandbox import KERNELS, ROOT, Outcome, wait

GIB = 2**30
IDLE = 8.0  # seconds; no quick test sleeps so long
UNFIT = 99  # end of a child that could not make the change


@dataclass(frozen=True)
class Change:
    """The new text of a file, and the tests that run."""

    name: str
    place: Path
    text: str
    tests: tuple[str, ...]  # identifiers, in the order in which they run, or files

    @property
    def code(self) -> types.CodeType | None:
        """The changed code of a function; None if anything else changed."""
        before = self.place.read_text()
        if any(word in before for word in KERNELS):
            return None
        old, new = (compile(text, str(self.place), "exec") for text in (before, self.text))
        functions = list(zip(_functions(old), _functions(new), strict=False))
        if len(list(_functions(old))) != len(list(_functions(new))) or _rest(old) != _rest(new):
            return None
        changed = [b for a, b in functions if _content(a) != _content(b)]
        return changed[0] if len(changed) == 1 and changed[0].co_name[0] != "<" else None


def _functions(code: types.CodeType) -> Iterator[types.CodeType]:
    """Outermost functions of a module."""
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            if each.co_flags & 2:  # CO_NEWLOCALS: a function, and not the body of a class
                yield each
            else:
                yield from _functions(each)


def _content(code: types.CodeType) -> tuple[object, ...]:
    """Code without its lines."""
    parts = (_content(c) if isinstance(c, types.CodeType) else (type(c), repr(c)) for c in code.co_consts)
    return code.co_name, code.co_code, code.co_names, code.co_varnames, code.co_freevars, tuple(parts)


def _rest(code: types.CodeType) -> list[tuple[object, ...]]:
    """Code of a module and of the bodies of its classes, without their functions and lines."""
    consts = [(type(c), repr(c)) for c in code.co_consts if not isinstance(c, types.CodeType)]
    rest: list[tuple[object, ...]] = [(code.co_code, code.co_names, str(consts))]
    for each in code.co_consts:
        if isinstance(each, types.CodeType) and not each.co_flags & 2:
            rest += _rest(each)
    return rest


def use_this_tree() -> None:
    """Import dpcvx, here and in processes that tests start, from the tree in which the changes are."""
    sys.path.insert(0, str(ROOT / "src"))
    os.environ["PYTHONPATH"] = str(ROOT / "src")


class Live:
    """A plugin of pytest that runs the tests of one change after the other, each until one fails.

    `changes`: each with a `code`; `keep`: called with a change, its outcome and the number of tests, says
    whether to go on; `seconds`: what tests take, for those that are known.
    """

    def __init__(
        self,
        changes: list[Change],
        keep: Callable[[Change, Outcome, int], bool],
        seconds: dict[str, float] | None = None,
    ) -> None:
        self._changes, self._keep, self._seconds = changes, keep, seconds or {}
        # Tests that wait for threads, which a child does not have; they run only in a sandbox.
        self._stuck: set[str] = set()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in session.items:
            items[item.nodeid].append(item)
            for end in range(1, item.nodeid.count("::") + 1):
                items["::".join(item.nodeid.split("::")[:end])].append(item)
            items[item.nodeid.split("[")[0]].append(item)
        for place in {change.place for change in self._changes}:  # some are imported when they are needed
            importlib.import_module(".".join(place.relative_to(ROOT / "src").with_suffix("").parts))
        functions, memoised = _find_functions()
        gc.freeze()
        for change in self._changes:
            code = change.code
            found = functions[code.co_filename, code.co_qualname, code.co_firstlineno]
            if not found:
                raise RuntimeError(f"{change.name}: the function was not found.")
            chosen = list(dict.fromkeys(item for test in change.tests for item in items[test]))
            chosen = [item for item in chosen if item.nodeid not in self._stuck]
            began = time.monotonic()
            while (by := self._run(code, found, memoised, chosen)) in self._stuck:
                chosen = [item for item in chosen if item.nodeid != by]
            outcome = Outcome(bool(by), by, time.monotonic() - began)
            if not self._keep(change, outcome, len(chosen)):
                break
        return True

    def _run(self, code, functions, memoised, items: list[pytest.Item]) -> str:
        """Return the first test that fails."""
        with tempfile.NamedTemporaryFile() as note:
            child = os.fork()
            if child == 0:
                status = UNFIT
                try:
                    os.setpgid(0, 0)
                    resource.setrlimit(resource.RLIMIT_DATA, (8 * GIB, 8 * GIB))
                    for function in functions:
                        function.__code__ = code
                    for each in memoised:
                        each.cache_clear()
                    status = self._run_tests(items, Path(note.name))
                finally:
                    os._exit(status)
            seconds = sum(self._seconds.get(item.nodeid, 1.0) for item in items)
            status = wait(child, time.monotonic() + 30 + 4 * seconds, IDLE)
            by = Path(note.name).read_text()
        if status is None:
            self._stuck.add(by)
            return by
        ended = os.waitstatus_to_exitcode(status)
        how = " (timeout)" if ended == -signal.SIGPROF else f" (end {ended})"
        return {0: "", UNFIT: "", 1: by}.get(ended, by + how)

    def _run_tests(self, items: list[pytest.Item], note: Path) -> int:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process
        for item, following in zip(items, [*items[1:], None], strict=True):
            note.write_text(item.nodeid)
            signal.setitimer(signal.ITIMER_PROF, 10 + 10 * self._seconds.get(item.nodeid, 2.0))
            # Filters of warnings are set around the hook that `runtestprotocol` is called by.
            with catch_warnings_for_item(item.config, item.ihook, when="runtest", item=item):
                reports = runtestprotocol(item, log=False, nextitem=following)
            if any(report.failed for report in reports):
                return 1
        return 0


def _find_functions():
    """Functions of dpcvx in memory by file, name and line, and memoised ones."""
    functions, memoised = defaultdict(list), []
    # `type`: some objects are weak references that `isinstance` would follow
    for thing in gc.get_objects():
        if type(thing) is types.FunctionType:
            code = thing.__code__
            functions[code.co_filename, code.co_qualname, code.co_firstlineno].append(thing)
        elif type(thing) is functools._lru_cache_wrapper and str(thing.__module__).startswith("dpcvx"):
            memoised.append(thing)
    return functions, memoised
