"""The trajectories that match where one is wanted, and what would tell them apart."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any, Final

from otel_rollout.catalog.grouping import prompt_order
from otel_rollout.folder.reader import RecordedTrajectory
from otel_rollout.text.plain_text import status_name

__all__ = ["Candidates"]

MAX_CANDIDATES: Final = 20
SHORT_ID: Final = 12
_OPTIONS: Final = {
    "--step": attrgetter("step"),
    "--train or --validate": attrgetter("validate"),
    "--experiment": attrgetter("experiment_name"),
    "--run": attrgetter("run_id"),
    "--sample": attrgetter("sample_index"),
    "--rollout": attrgetter("rollout_n"),
}
"""The options that name a trajectory, with the attribute that each is compared with."""


class Candidates:
    """The trajectories that match.

    Args:
        matching: All of them; only the first in the order of prompts are kept.
    """

    def __init__(self, matching: Iterable[RecordedTrajectory]) -> None:
        self.count = 0
        self._values: dict[str, set[str]] = {option: set() for option in _OPTIONS}
        self.first = heapq.nsmallest(MAX_CANDIDATES, self._counted(matching), key=prompt_order)
        """The first of them."""

    def _counted(self, matching: Iterable[RecordedTrajectory]) -> Iterator[RecordedTrajectory]:
        for each in matching:
            self.count += 1
            for option, value_of in _OPTIONS.items():
                if len(self._values[option]) < 2:
                    self._values[option].add(str(value_of(each)))
            yield each

    def describe(self, *, is_terminal: bool) -> Iterator[str]:
        """Yield the lines that list them and say how to pick one.

        Args:
            is_terminal: Leave out tags that all of them have, and the ends of the trace ids.
        """
        tags = {tuple(str(value_of(each)) for value_of in _OPTIONS.values()) for each in self.first}
        telling = [option for option, values in self._values.items() if len(values) > 1]
        advice = f"with {', '.join(telling)}, or with --trace" if telling else "with --trace: their tags are the same"
        if telling and len(tags) < len(self.first):
            advice = "with --trace: some have the same tags"
        more = f", of which these are the first {MAX_CANDIDATES}" if self.count > MAX_CANDIDATES else ""
        yield f"{self.count:,} trajectories match{more}; pick one {advice}"
        rows = [_cells(each) for each in self.first]
        columns = list(zip(*rows, strict=True))
        if "--run" not in telling:
            del columns[-1]
        if is_terminal:
            columns[0] = tuple(cell[: len("--trace ") + SHORT_ID] for cell in columns[0])
            if "--run" in telling:
                columns[-1] = tuple(cell[: len("--run ") + SHORT_ID] for cell in columns[-1])
            columns = [column for column in columns if len(set(column)) > 1 or not column[0].startswith("--")]
        widths = [max(map(len, column)) for column in columns]
        for row in zip(*columns, strict=True):
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width)
            yield f"  {'  '.join(cells)}".rstrip()


def _cells(each: RecordedTrajectory) -> list[str]:
    def option(name: str, value: Any) -> str:
        return "" if value is None else f"{name} {value}"

    return [
        f"--trace {each.trace_id}",
        option("--step", each.step),
        "--validate" if each.validate else "",
        option("--sample", each.sample_index),
        option("--rollout", each.rollout_n),
        status_name(each.status, has_root=each.has_root),
        "no reward" if each.reward is None else f"reward {each.reward:.3g}",
        option("--experiment", each.experiment_name),
        option("--run", each.run_id),
    ]
