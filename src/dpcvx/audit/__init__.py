"""Privacy checks: replay a private run on neighbouring data and compare exact sums; check a pipeline."""

from dpcvx.audit.pipeline import PipelineReport, PipelineStep, check_pipeline
from dpcvx.audit.replay import RecordedQuestion, RunTranscript, discrepancies, record, replay, share

__all__ = [
    "PipelineReport",
    "PipelineStep",
    "RecordedQuestion",
    "RunTranscript",
    "check_pipeline",
    "discrepancies",
    "record",
    "replay",
    "share",
]
