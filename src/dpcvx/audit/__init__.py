"""Privacy checks: record a private run, replay it on neighbouring data, and compare the exact sums."""

from dpcvx.audit.replay import (
    Question,
    Transcript,
    discrepancies,
    record,
    replay,
    share,
)

__all__ = ["Question", "Transcript", "discrepancies", "record", "replay", "share"]
