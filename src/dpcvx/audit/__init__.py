"""Checks of the privacy claim that anyone can run."""

from dpcvx.audit.replay import (
    Question,
    Transcript,
    discrepancies,
    record,
    replay,
    share,
)

__all__ = ["Question", "Transcript", "discrepancies", "record", "replay", "share"]
