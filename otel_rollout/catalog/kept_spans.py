"""Asks a catalog about rows of spans, messages and conversations, which are read from frames once and then kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from typing import Any

from otel_rollout.catalog.catalog import IN_STEP, Answered, Catalog, selection_of
from otel_rollout.catalog.filling import Found
from otel_rollout.catalog.query import MAX_SPAN_BYTES, QueryError
from otel_rollout.catalog.spans import StepKey, fill_step, filled_steps, kept_rows
from otel_rollout.text.plain_text import counted


class KeptSpans:
    """The rows of spans of a catalog.

    Args:
        catalog: The catalog.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def check_size(self, keys: Sequence[StepKey]) -> None:
        """Refuse a question that reads the spans of too many trajectories.

        Args:
            keys: The steps that it reads.

        Raises:
            QueryError: It does.
        """
        select = "SELECT step, validate, sum(bytes) FROM trajectories GROUP BY step, validate"
        sizes = self._catalog.ask(lambda connection, _: connection.execute(select).fetchall())
        read = [size for step, validate, size in sizes if (step, bool(validate)) in keys]
        if sum(read) > MAX_SPAN_BYTES:
            raise QueryError(
                f"it reads the spans of {counted(len(read), 'step')}, {sum(read) / 2**30:.1f} GiB; the limit is "
                f"{MAX_SPAN_BYTES / 2**30:g} GiB: name fewer steps"
            )

    def ask(
        self, keys: Sequence[StepKey], question: Callable[[sqlite3.Connection], Answered]
    ) -> tuple[Answered, Sequence[str]]:
        """Ask once the rows of steps are kept; return the trajectories that can't be read, too.

        Args:
            keys: The steps.
            question: Called with the catalog.
        """

        def answer(connection: sqlite3.Connection, _: Found) -> tuple[Answered, Sequence[str]] | None:
            filled = filled_steps(connection) if keys else {}
            if any(key not in filled for key in keys):
                return None
            return question(connection), [trace_id for key in keys for trace_id in filled[key]]

        # Another process may empty a step meanwhile.
        while (found := self._catalog.ask(answer)) is None:
            self._fill(keys)
        return found

    def rows(
        self, keys: Sequence[StepKey], table: str, columns: Sequence[str], take: Callable[[list[list[Any]]], Answered]
    ) -> tuple[list[Answered], Sequence[str]]:
        """Return the rows of steps that count, and the trajectories that can't be read.

        Args:
            keys: The steps, of which one at a time is kept for this.
            table: The table.
            columns: The names of its columns.
            take: Makes something of the values of each column, of some rows at a time.
        """
        taken: list[Answered] = []
        unreadable: list[str] = []
        for key in keys:
            found, missing = self.ask([key], partial(_take, key=key, table=table, columns=columns, take=take))
            taken += found
            unreadable += missing
        return taken, unreadable

    def _fill(self, keys: Sequence[StepKey]) -> None:
        filled = self._catalog.ask(lambda connection, _: filled_steps(connection))
        missing = [key for key in keys if key not in filled]
        for done, key in enumerate(missing, 1):
            recorded = self._catalog.recorded(IN_STEP, key, selection_of(key[0]))
            self._catalog.keep(partial(fill_step, key=key, trajectories=recorded, spared=keys))
            self._catalog.on_progress(done, len(missing), "step")


def _take(
    connection: sqlite3.Connection,
    key: StepKey,
    table: str,
    columns: Sequence[str],
    take: Callable[[list[list[Any]]], Answered],
) -> list[Answered]:
    select = f"SELECT trace_id FROM trajectories t WHERE {IN_STEP} AND t.overtaken"
    overtaken = {trace_id for (trace_id,) in connection.execute(select, key)}
    taken = []
    for ids, *values in kept_rows(connection, key, table, ["trace_id", *columns]):
        counts = [trace_id not in overtaken for trace_id in ids]
        taken.append(take([list(compress(column, counts)) for column in values]))
    return taken
