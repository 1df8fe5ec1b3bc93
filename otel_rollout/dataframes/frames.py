"""The tables of trace folders as Arrow tables: columns and conditions apply while reading."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from operator import index
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias

from otel_rollout.catalog import QueryError, Run
from otel_rollout.errors import MissingExtraError, NoTracesError, UnreadableTraceError
from otel_rollout.folder.reader import RecordedTrajectory
from otel_rollout.folder.stored_file import ReadProblem
from otel_rollout.installing import install_line
from otel_rollout.text.plain_text import counted

if TYPE_CHECKING:
    import pyarrow as pa


Folder: TypeAlias = str | PathLike[str]
Folders: TypeAlias = Folder | Sequence[Folder]
Names: TypeAlias = Sequence[str] | None
Steps: TypeAlias = int | Container[int | None] | None


def trajectories(folder: Folders, *, steps: Steps = None, columns: Names = None, where: str = "") -> pa.Table:
    """Return trajectories as an Arrow table; docs/reference/catalog.md has the columns.

    Args:
        folder: The trace folder, or several.
        steps: One training step, or a container of steps: a range, a set, a list; None for all.
        columns: The names of the columns; the others are not read. None for all.
        where: The condition in SQL, as after WHERE, of any of the columns: `reward > 0.5 AND status = 'completed'`.

    Raises:
        RolloutTraceError: The condition or a column is wrong, or the folder has no traces.
        MissingExtraError: pyarrow isn't installed.
    """
    return _read("trajectories", folder, steps, columns, where)


def rewards(folder: Folders, *, steps: Steps = None, columns: Names = None, where: str = "") -> pa.Table:
    """Return the named parts of rewards as an Arrow table; it takes the arguments of `trajectories`."""
    return _read("rewards", folder, steps, columns, where)


def spans(folder: Folders, *, steps: Steps = None, columns: Names = None, where: str = "") -> pa.Table:
    """Return spans as an Arrow table; it takes the arguments of `trajectories`.

    Trajectories that can't be read are left out with a warning; `errors` has them.
    """
    return _read("spans", folder, steps, columns, where)


def messages(folder: Folders, *, steps: Steps = None, columns: Names = None, where: str = "") -> pa.Table:
    """Return the messages of conversations as an Arrow table; it takes the arguments of `trajectories`.

    Trajectories that can't be read are left out with a warning; `errors` has them.
    """
    return _read("messages", folder, steps, columns, where)


def conversations(folder: Folders, *, steps: Steps = None, columns: Names = None, where: str = "") -> pa.Table:
    """Return conversations, of sub-agents too, as an Arrow table; it takes the arguments of `trajectories`.

    Trajectories that can't be read are left out with a warning; `errors` has them.
    """
    return _read("conversations", folder, steps, columns, where)


def errors(folder: Folders, *, steps: Steps = None) -> pa.Table:
    """Return damaged trajectories, and damaged places of files, as an Arrow table.

    Args:
        folder: The trace folder, or several.
        steps: The steps, whose spans are all read; None for all.
    """
    require_arrow()
    import pyarrow as pa

    problems: list[ReadProblem] = []
    damaged: list[Mapping[str, Any]] = []
    for trajectory in _run_of(folder, problems.append).read(step=_steps_of(steps)):
        if (error := _error_of(trajectory)) is not None:
            tags = {"trace_id": trajectory.trace_id, "step": trajectory.step, "validate": trajectory.validate}
            damaged.append({**tags, "file": str(trajectory.parts[0][0].file.path), "error": error})
    damaged += [{"file": str(each.path), "offset": each.offset, "error": each.what} for each in problems]
    types = {"trace_id": pa.string(), "step": pa.int64(), "validate": pa.bool_(), "file": pa.string()}
    return pa.Table.from_pylist(damaged, pa.schema({**types, "offset": pa.int64(), "error": pa.string()}))


def _error_of(trajectory: RecordedTrajectory) -> str | None:
    try:
        for span in trajectory.spans:
            # It is parsed here.
            _ = span.attributes
    except UnreadableTraceError as error:
        return str(error)
    return None


def _run_of(folder: Folders, on_problem: Callable[[ReadProblem], None] | None = None) -> Run:
    folders = [folder] if isinstance(folder, (str, PathLike)) else folder
    if not len(folders):
        raise NoTracesError("there is no trace folder in an empty list")
    run = Run([Path(each) for each in folders], on_problem or _warn)
    run.require_folders()
    return run


def _warn(problem: ReadProblem) -> None:
    warnings.warn(
        f"{problem.what} skipped in {problem.path}; otel_rollout.dataframes.errors has the place", stacklevel=2
    )


def _steps_of(steps: Steps) -> Steps:
    """Return steps as `Run` takes them: numpy has integers of its own, and looks for None, and pandas for labels."""
    if isinstance(steps, (range, NoneType)):
        return steps
    try:
        if isinstance(steps, Iterable) and not isinstance(steps, str):
            return {None if each is None else index(each) for each in steps}
        return steps if isinstance(steps, Container) and not isinstance(steps, str) else index(steps)
    except TypeError:
        raise QueryError(f"steps is a whole number, or a range, a set or a list of them, not {steps!r}") from None


def require_arrow() -> None:
    """Check that what reads a trace folder, and makes Arrow tables, is installed.

    Raises:
        MissingExtraError: It is not.
    """
    missing = [package for package in ("pyarrow", "zstandard") if importlib.util.find_spec(package) is None]
    if missing:
        raise MissingExtraError(f"this needs {' and '.join(missing)}: {install_line('data')}")


def _condition(where: str) -> str:
    if where.split()[:1] in (["WHERE"], ["where"]):
        raise QueryError(f"where is the condition without the word WHERE, not {where!r}")
    # On a line of its own: it may end in a comment.
    return f" WHERE ({where}\n)" if where.strip() else ""


def _read(table: str, folder: Folders, steps: Steps, names: Names, where: str) -> pa.Table:
    """Return rows of a table; of tables of spans, a condition on their trajectories reads no other spans."""
    require_arrow()
    from otel_rollout.catalog.query import understood
    from otel_rollout.catalog.span_columns import COMMON, OF_SPANS, batches_of
    from otel_rollout.dataframes.arrow import SECONDS, UNREADABLE_KEY, batch_of, columns_named, table_of, take_batches
    from otel_rollout.dataframes.closed_indexes import read_closed

    columns = columns_named(table, names)
    run, steps, condition = _run_of(folder), _steps_of(steps), _condition(where)
    unreadable: Sequence[str] = []
    asked = understood(f"SELECT 1 FROM {table}{condition}").columns.get(table, set())
    is_whole = table == "trajectories" and steps is None and not condition
    if is_whole and (closed := read_closed(run.folders, columns)) is not None:
        batches = closed
    elif table in OF_SPANS and not condition:
        of_columns = partial(batch_of, columns)
        batches, unreadable = run.span_rows(table, [each.name for each in columns], steps, of_columns)
    elif table in OF_SPANS and asked.issubset(each.name for each in COMMON):
        sql = f"SELECT trace_id FROM (SELECT trace_id, step, validate FROM trajectories) AS {table}{condition}"
        ids, *_ = run.take(sql, lambda cursor: {trace_id for (trace_id,) in cursor}, steps, seconds=SECONDS)
        read = (each for each in run.read(step=steps) if each.trace_id in ids)
        unreadable = []
        batches = [batch_of(columns, each[table]) for each in batches_of(read, {table: columns}, unreadable.append)]
    else:
        batches, unreadable = take_batches(run, table, columns, condition, steps)
    if unreadable:
        warnings.warn(
            f"{counted(len(unreadable), 'trajectory')} can't be read; otel_rollout.dataframes.errors lists them",
            stacklevel=3,
        )
    more = {UNREADABLE_KEY: str(len(unreadable)).encode()} if table in OF_SPANS else {}
    return table_of(columns, batches, more)
