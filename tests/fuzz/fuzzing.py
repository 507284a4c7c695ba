"""Feeds a target with inputs, and says what should not have happened."""

import random
import re
import resource
import signal
import sys
import time
import warnings
from dataclasses import dataclass, field

from targets import NUMBER, SECRET, Target

from dpcvx.errors import DpcvxError

LONGEST = 5.0  # seconds of processor time, ample for one that shares its processor with others
MOST = 2**29  # bytes of memory beyond the most that was used before
# What no reader of a file or a request does.
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect")
EVERY = ("slow", "takes too much memory")  # reported whatever the outcome is
VARYING = re.compile(r"[0-9.]+|'[^']*'")
_happened: list[str] = []


@dataclass
class Run:
    """Number of inputs, kinds of outcomes, and findings with their inputs."""

    inputs: int = 0
    seconds: float = 0.0
    outcomes: set[str] = field(default_factory=set)
    findings: list[tuple[str, bytes]] = field(default_factory=list)


def _watch() -> None:
    """Note events of the interpreter that would be execution of an input; once in a process."""
    if not getattr(_watch, "on", False):
        _watch.on = True
        sys.addaudithook(lambda event, _: _happened.append(event) if event in FORBIDDEN else None)


def _memory() -> int:
    """Most bytes of memory that this process has used."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _hang(*_: object) -> None:
    raise TimeoutError


def outcome(target: Target, content: bytes) -> tuple[str, str | None]:
    """Read one input; return the kind of its outcome, and what was wrong, or None."""
    _happened.clear()
    began, used, problem, said = time.process_time(), _memory(), None, []
    signal.signal(signal.SIGVTALRM, _hang)
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            answer = target.read(content)
        kind = f"read: {VARYING.sub('#', answer)[:60]}" if isinstance(answer, str) else "read"
    except DpcvxError as error:
        kind = f"{type(error).__name__}: {VARYING.sub('#', str(error))[:60]}"
        said.append(str(error))
    except TimeoutError:
        kind, problem, caught = "hang", f"longer than {LONGEST:g} s", []
    except Exception as error:
        kind = type(error).__name__
        problem = f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    said += [str(warning.message) for warning in caught]
    if problem is None and _happened:
        problem = f"ran {_happened[0]}"
    if problem is None and any(secret in text for text in said for secret in (SECRET, NUMBER)):
        problem = "a message repeats a cell"
    if problem is None and _memory() - used > MOST:
        problem = "takes too much memory"
    if problem is None and time.process_time() - began > LONGEST / 2:
        problem = "slow"
    return kind, problem


def fuzz(target: Target, *, inputs: int, seconds: float, seed: int) -> Run:
    """Read changed inputs until there were so many, or for so long.

    Inputs with a new kind of outcome are changed further.
    """
    _watch()
    rng, run = random.Random(f"{target.name} {seed}"), Run()
    pool, began = target.seeds(), time.monotonic()
    for content in pool:
        _take(target, content, run)
    while run.inputs < inputs and time.monotonic() - began < seconds:
        content = target.change(rng.choice(pool), pool, rng)
        if _take(target, content, run) and len(pool) < 2000:
            pool.append(content)
    run.seconds = time.monotonic() - began
    return run


def _take(target: Target, content: bytes, run: Run) -> bool:
    """Read an input, and return whether its outcome is of a new kind."""
    kind, problem = outcome(target, content)
    run.inputs += 1
    new = kind not in run.outcomes
    run.outcomes.add(kind)
    if problem is not None and (new or kind.startswith(("read", "hang")) or problem in EVERY):
        run.findings.append((problem, content))
    return new
