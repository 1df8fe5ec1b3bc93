"""Findings: deterministic checks of step summaries, each with its threshold and its evidence."""

from otel_rollout.analysis.findings.diagnosis import Diagnosis, diagnose, last_steps
from otel_rollout.analysis.findings.finding import Finding, Severity, TooFew
from otel_rollout.analysis.findings.registry import CHECKS, default_thresholds

__all__ = ["CHECKS", "Diagnosis", "Finding", "Severity", "TooFew", "default_thresholds", "diagnose", "last_steps"]
