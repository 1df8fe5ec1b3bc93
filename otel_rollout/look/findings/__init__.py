"""Findings: deterministic checks of step summaries, each with its threshold and its evidence."""

from otel_rollout.look.findings.diagnosis import Diagnosis, diagnose, diagnose_run, last_steps, running_steps
from otel_rollout.look.findings.finding import Finding, Severity, TooFew, evidence_of
from otel_rollout.look.findings.registry import CHECKS, default_thresholds

__all__ = [
    "CHECKS",
    "Diagnosis",
    "Finding",
    "Severity",
    "TooFew",
    "default_thresholds",
    "diagnose",
    "diagnose_run",
    "evidence_of",
    "last_steps",
    "running_steps",
]
