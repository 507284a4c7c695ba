"""Privacy checks: replays on neighbouring data, distinguishing attacks, laws of the noise, pipelines."""

from dpcvx.audit.audit_report import AuditedFit, AuditReport, audit, audit_fit
from dpcvx.audit.fits import FitData, ReplayedFit, hostile_neighbours, replay_fit
from dpcvx.audit.pipeline import PipelineReport, PipelineStep, check_pipeline
from dpcvx.audit.replay import RecordedQuestion, RunTranscript, discrepancies, record, replay, share
from dpcvx.audit.worst_cases import CASES, AuditedCase, WorstCase, audit_case

__all__ = [
    "CASES",
    "AuditReport",
    "AuditedCase",
    "AuditedFit",
    "FitData",
    "PipelineReport",
    "PipelineStep",
    "RecordedQuestion",
    "ReplayedFit",
    "RunTranscript",
    "WorstCase",
    "audit",
    "audit_case",
    "audit_fit",
    "check_pipeline",
    "discrepancies",
    "hostile_neighbours",
    "record",
    "replay",
    "replay_fit",
    "share",
]
