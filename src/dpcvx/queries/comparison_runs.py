"""Runs of comparisons of an engine: each step is durable before anything depends on it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dpcvx.queries.engine_plan import EnginePlan
from dpcvx.queries.mechanisms import PublicAnswer
from dpcvx.queries.private_side import PrivateSide
from dpcvx.queries.sparse_vector import ComparisonRun
from dpcvx.queries.transcript import UNCHANGED, EngineTranscript, TranscriptEntry

__all__ = ["Asker", "ComparisonRuns"]


@dataclass(frozen=True)
class Asker:
    """Somebody whose queries may cause a limited number of new measurements.

    Parameters
    ----------
    name : str
        Name in the transcript, for instance the id of an API key.
    measurements : int
        Largest number of new measurements. Further queries are answered without a comparison.
    """

    name: str
    measurements: int


@dataclass(frozen=True)
class RunState:
    """An open run as it is kept: private, because of its threshold.

    A run is its threshold: comparisons below leave nothing else behind. `count` tells states apart.
    """

    run: int  # number of the run
    threshold: int = field(repr=False)
    count: int = 0  # comparisons so far
    above: int = field(
        default=0, repr=False
    )  # 1 if the last one was above; a digit, so that both are as long
    query: dict[str, Any] | None = None  # query of the last comparison
    asker: str = ""

    def to_bytes(self) -> bytes:
        """Return the state as it is kept; its length does not depend on the result of the comparison."""
        return json.dumps(asdict(self)).encode()


class ComparisonRuns:
    """Opens, continues and ends the runs of sparse vector of one engine.

    A result above is kept before anything depends on it; a result below is kept with its answer, or alone if
    the answer is not stored, by a write that is at least as large. So wherever the write of a result above
    fails, that of a result below would have failed too: a comparison is never dropped because it was above,
    and a run that found something is over whatever happens next. The end of a run is an entry of the
    transcript, and therefore of the ledger's chain and of its witness, before the new measurement is made: an
    old copy of the ledger that would continue the run is refused. Until then a new start continues the run
    with its threshold and fresh noise on each score, exactly as if it had not been interrupted.

    `plan`: of the engine; `private_side`: compares; `transcript`: of the engine.
    """

    def __init__(self, plan: EnginePlan, private_side: PrivateSide, transcript: EngineTranscript) -> None:
        self._plan, self._private_side, self._transcript = plan, private_side, transcript
        self.settled = False  # whether nothing was interrupted
        self.unkept = UNCHANGED  # state of the run before and after a result that is not kept yet
        self.begun = 0  # runs, or selections, that were begun
        self._open: ComparisonRun | None = None
        self._state: RunState | None = None  # of the open run, as it is kept
        self._ends: list[dict[str, Any]] = []

    @property
    def left(self) -> int:
        """Number of runs or selections that are left, an open run included."""
        return self._plan.split.updates - self.begun + (self._open is not None)

    def caused_by(self, name: str) -> int:
        """Return the number of runs that queries of one asker ended."""
        return Counter(end["asker"] for end in self._ends)[name]

    def begin(self) -> None:
        """Note a run or selection before it reads a record."""
        self._transcript.append("run", str(self.begun))
        self.begun += 1

    def restore(self, entries: Sequence[TranscriptEntry], updates: int) -> dict[str, Any] | None:
        """Continue from the transcript after a start or an error.

        Returns the query that was found to be above the level and is still to be measured, or None.

        `entries`: of the transcript; `updates`: number of measurements that were noted.
        """
        self.begun = sum(entry.kind == "run" for entry in entries)
        self._ends = [json.loads(entry.content) for entry in entries if entry.kind == "end"]
        self._open = self._state = None
        self.unkept = UNCHANGED
        if self._plan.comparison is None:
            return None
        kept = self._transcript.read_run()
        if kept is not None:
            self._state = RunState(**json.loads(kept))
            self._open = self._plan.comparison.resume(self._state.threshold)
            if any(entry.kind == "end" and entry.key == str(self._state.run) for entry in entries):
                self._transcript.keep_run(kept, None)  # it was written by a write that failed afterwards
                self._open = self._state = None
            elif self._state.above:
                self._end(updates)
        due = self._ends[-1] if self._ends and self._ends[-1]["update"] >= updates else None
        return None if due is None else due["query"]

    def above(self, checked: PublicAnswer, updates: int, asker: Asker | None) -> bool:
        """Compare the error of a public answer with the level, in the open run or in the next one.

        The caller keeps `unkept` with an answer that is below, or notes the measurement of one that is above,
        and then sets `settled`.
        """
        self.settled, self.unkept = False, UNCHANGED
        if self._open is None or self._state is None:
            self._open, self._state = self._start()
        above = self._private_side.above(self._open, checked, self._plan.level)
        compared = replace(
            self._state,
            count=self._state.count + 1,
            above=int(above),
            query=checked.query.description.to_json(),
            asker="" if asker is None else asker.name,
        )
        change = self._state.to_bytes(), compared.to_bytes()
        if above:
            self._transcript.keep_run(*change)
        else:
            self.unkept = change
        self._state = compared
        if above:
            self._end(updates)
        return above

    def _start(self) -> tuple[ComparisonRun, RunState]:
        """Start the next run: noted, and its threshold kept, before its first comparison."""
        run = self._private_side.start(self._plan.comparison)
        state = RunState(self.begun, run.threshold)
        self._transcript.append("run", str(self.begun), run=(None, state.to_bytes()))
        self.begun += 1
        return run, state

    def _end(self, updates: int) -> None:
        """Note the end of the open run and forget its threshold."""
        state = self._state
        if state is None:
            return
        end = {"update": updates, "query": state.query, "asker": state.asker}
        self._transcript.append("end", str(state.run), json.dumps(end).encode(), run=(state.to_bytes(), None))
        self._ends.append(end)
        self._open = self._state = None
