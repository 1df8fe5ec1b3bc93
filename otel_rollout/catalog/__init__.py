"""A trace folder read as a run: steps, groups, trajectories, searches."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.catalog.figures import catalog_of, groups, refresh, steps
    from otel_rollout.catalog.filling import find_files, summaries_of
    from otel_rollout.catalog.group_summary import GroupSummary, Spread
    from otel_rollout.catalog.live import BETWEEN_OPS, LiveRun, RunningTrajectory, StepWait
    from otel_rollout.catalog.query import Answer, QueryError
    from otel_rollout.catalog.records import delete, insert, load
    from otel_rollout.catalog.rollout_run import Run
    from otel_rollout.catalog.search import Search, SearchHit
    from otel_rollout.catalog.spans import fill_step, filled_steps, show_rows
    from otel_rollout.catalog.step_signals import JudgedStep, StepSignals, signals_of
    from otel_rollout.catalog.step_summary import StepSummary
    from otel_rollout.catalog.tables import COLUMNS, SQL_COLUMNS, attach, create
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "figures": ("catalog_of", "groups", "refresh", "steps"),
            "filling": ("find_files", "summaries_of"),
            "group_summary": ("GroupSummary", "Spread"),
            "live": ("BETWEEN_OPS", "LiveRun", "RunningTrajectory", "StepWait"),
            "query": ("Answer", "QueryError"),
            "records": ("delete", "insert", "load"),
            "rollout_run": ("Run",),
            "search": ("Search", "SearchHit"),
            "spans": ("fill_step", "filled_steps", "show_rows"),
            "step_signals": ("JudgedStep", "StepSignals", "signals_of"),
            "step_summary": ("StepSummary",),
            "tables": ("COLUMNS", "SQL_COLUMNS", "attach", "create"),
        },
    )
