"""Metrics in the text format of Prometheus: counts, times, queues and budget, from public facts alone."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping

__all__ = ["Metrics"]

BUCKETS = (0.01, 0.05, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds


class Metrics:
    """Counts of responses by route and status, and their times: nothing about answers, branches or analysts.

    Times of queries are whole numbers of slots, as analysts see them; all are counted in milliseconds.
    """

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._refusals: Counter[str] = Counter()
        self._times: dict[str, list[int]] = {}
        self._milliseconds: Counter[str] = Counter()

    def count(self, route: str, status: int, seconds: float, code: str | None = None) -> None:
        """Count one response.

        `seconds`: from the request to the response; `code`: of a refusal.
        """
        self._requests[route, status] += 1
        self._times.setdefault(route, [0] * (len(BUCKETS) + 1))[bisect_left(BUCKETS, seconds)] += 1
        self._milliseconds[route] += round(1000 * seconds)
        if code is not None:
            self._refusals[code] += 1

    def text(self, gauges: Mapping[str, tuple[str, float]]) -> str:
        """Return everything as text.

        `gauges`: values of the moment by name, each with its description.
        """
        lines = [*_head("dpcvx_requests_total", "counter", "Responses sent.")]
        lines += [
            f'dpcvx_requests_total{{route="{route}",status="{status}"}} {count}'
            for (route, status), count in sorted(self._requests.items())
        ]
        lines += _head("dpcvx_refusals_total", "counter", "Refusals by code.")
        lines += [
            f'dpcvx_refusals_total{{code="{code}"}} {count}' for code, count in sorted(self._refusals.items())
        ]
        lines += _head("dpcvx_request_seconds", "histogram", "Time from request to response.")
        for route, counts in sorted(self._times.items()):
            total = 0
            for bound, count in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
                total += count
                lines.append(f'dpcvx_request_seconds_bucket{{route="{route}",le="{bound}"}} {total}')
            seconds = self._milliseconds[route] / 1000
            lines.append(f'dpcvx_request_seconds_sum{{route="{route}"}} {seconds:.3f}')
            lines.append(f'dpcvx_request_seconds_count{{route="{route}"}} {total}')
        for name, (words, value) in gauges.items():
            lines += [*_head(name, "gauge", words), f"{name} {value:g}"]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, words: str) -> tuple[str, str]:
    return f"# HELP {name} {words}", f"# TYPE {name} {kind}"
