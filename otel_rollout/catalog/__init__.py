"""A trace folder read as a run: steps, groups, trajectories, searches."""

from otel_rollout.catalog.folder_stats import FolderStats, count_folder
from otel_rollout.catalog.live import BETWEEN_OPS, LiveRun, RunningTrajectory, StepWait, read_live
from otel_rollout.catalog.rollout_run import Run
from otel_rollout.catalog.search import Search, SearchHit, SearchQuery
from otel_rollout.catalog.step_making import summarise_runs
from otel_rollout.facts.json_types import to_json

__all__ = [
    "BETWEEN_OPS",
    "FolderStats",
    "LiveRun",
    "Run",
    "RunningTrajectory",
    "Search",
    "SearchHit",
    "SearchQuery",
    "StepWait",
    "count_folder",
    "read_live",
    "summarise_runs",
    "to_json",
]
