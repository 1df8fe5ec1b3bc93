"""A trace folder read as a run: steps, groups, trajectories, searches."""

from otel_rollout.catalog.folder_stats import FolderStats, count_folder
from otel_rollout.catalog.group_summary import GroupSummary, Spread, summarise_groups
from otel_rollout.catalog.live import BETWEEN_OPS, LiveRun, RunningTrajectory, StepWait, read_live
from otel_rollout.catalog.rollout_run import Run
from otel_rollout.catalog.schema import create, delete, insert, load
from otel_rollout.catalog.search import Search, SearchHit, SearchQuery
from otel_rollout.catalog.step_making import summarise_runs
from otel_rollout.catalog.step_signals import StepSignals
from otel_rollout.catalog.step_summary import StepSummary, summarise_step
from otel_rollout.facts.json_types import to_json

__all__ = [
    "BETWEEN_OPS",
    "FolderStats",
    "GroupSummary",
    "LiveRun",
    "Run",
    "RunningTrajectory",
    "Search",
    "SearchHit",
    "SearchQuery",
    "Spread",
    "StepSignals",
    "StepSummary",
    "StepWait",
    "count_folder",
    "create",
    "delete",
    "insert",
    "load",
    "read_live",
    "summarise_groups",
    "summarise_runs",
    "summarise_step",
    "to_json",
]
