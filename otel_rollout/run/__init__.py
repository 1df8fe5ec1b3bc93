"""A trace folder read as a run: steps, groups, trajectories, searches."""

from otel_rollout.run.diagnosis import diagnose_run, running_steps
from otel_rollout.run.folder_stats import FolderStats, count_folder
from otel_rollout.run.live import BETWEEN_OPS, LiveRun, RunningTrajectory, StepWait, read_live
from otel_rollout.run.rollout_run import Run
from otel_rollout.run.search import Search, SearchHit, SearchQuery
from otel_rollout.run.step_making import summarise_runs
from otel_rollout.run.summary_json import to_json

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
    "diagnose_run",
    "read_live",
    "running_steps",
    "summarise_runs",
    "to_json",
]
