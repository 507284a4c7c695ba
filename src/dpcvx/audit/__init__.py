"""Privacy checks: record a private run, replay it on neighbouring data, and compare the exact sums."""

from dpcvx.audit.replay import RecordedQuestion, RunTranscript, discrepancies, record, replay, share

__all__ = ["RecordedQuestion", "RunTranscript", "discrepancies", "record", "replay", "share"]
