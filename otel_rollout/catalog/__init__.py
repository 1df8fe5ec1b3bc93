"""A trace folder read as a run: steps, groups, trajectories, searches."""

from otel_rollout.catalog.figures import summarise_runs
from otel_rollout.catalog.filling import find_files, summaries_of
from otel_rollout.catalog.folder_stats import FolderStats, count_folder
from otel_rollout.catalog.group_summary import GroupSummary, Spread
from otel_rollout.catalog.kept_figures import groups, refresh, steps
from otel_rollout.catalog.live import BETWEEN_OPS, LiveRun, RunningTrajectory, StepWait
from otel_rollout.catalog.query import Answer, QueryError
from otel_rollout.catalog.records import delete, insert, load
from otel_rollout.catalog.rollout_run import Run
from otel_rollout.catalog.search import Search, SearchHit, SearchQuery
from otel_rollout.catalog.spans import fill_step, filled_steps
from otel_rollout.catalog.sql import prepare
from otel_rollout.catalog.step_signals import JudgedStep, StepSignals, signals_of
from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.catalog.tables import COLUMNS, create
from otel_rollout.facts.json_types import to_json

__all__ = [
    "BETWEEN_OPS",
    "COLUMNS",
    "Answer",
    "FolderStats",
    "GroupSummary",
    "JudgedStep",
    "LiveRun",
    "QueryError",
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
    "fill_step",
    "filled_steps",
    "find_files",
    "groups",
    "insert",
    "load",
    "prepare",
    "refresh",
    "signals_of",
    "steps",
    "summaries_of",
    "summarise_runs",
    "to_json",
]
