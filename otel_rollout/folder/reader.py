"""Reads the trajectories of a trace folder, a spool, or any folder with lines of OTLP JSON, step by step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from operator import attrgetter
from os import PathLike
from sys import intern
from typing import TYPE_CHECKING, Any, Final

import orjson

# Their names are imported at first use: lists need none of them.
from otel_rollout import facts, otlp
from otel_rollout.errors import RolloutTraceError, UnreadableTraceError
from otel_rollout.facts.compact_spans import ERROR
from otel_rollout.facts.shapes import SpanShape, shapes_of
from otel_rollout.facts.summaries import merge_late, summarise_trajectory
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.folder.index import NOT_INFERRED, IndexEntry
from otel_rollout.folder.index_reading import summary_of_row
from otel_rollout.folder.layout import bundle_start
from otel_rollout.folder.selection import Selection
from otel_rollout.folder.stored_file import LineCache, MovedError, Part, ReadProblem, StoredFile
from otel_rollout.folder.trace_files import NO_STEPS, TraceFile, find_trace_files
from otel_rollout.text.plain_text import printable
from otel_rollout.text.sanitize import clean

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_line_of: Final = attrgetter("trace_id", "checksum", "bytes", "spans", "start_time", "end_time")
"""Identifies a line; it comes twice if a file was copied, or a write repeated."""
_TAGS: Final = ("step", "sample_index", "rollout_n", "validate", "experiment_name")
_NOT_INFERRED: Final = f'"{NOT_INFERRED}":true'.encode()
_ATTEMPTS: Final = 5
_logger = logging.getLogger("otel_rollout")


def read_trajectories(
    folder: str | PathLike[str],
    *,
    step: int | Container[int | None] | None = None,
    sample_index: int | str | None = None,
    rollout_n: int | str | None = None,
    validate: bool | None = None,
    experiment: str | None = None,
    run: str | None = None,
    status: str | None = None,
    reward: tuple[float | None, float | None] | None = None,
    on_problem: Callable[[ReadProblem], None] | None = None,
) -> Iterator[RecordedTrajectory]:
    """Read the trajectories of a trace folder lazily, ordered by step; those without a step come last.

    The filters are answered by the indexes; spans are read on first use of a trajectory's `spans`. All attempts of a
    resumed run are there.

    Args:
        folder: The folder that the `file` exporter writes, a spool, or a single file of lines of OTLP JSON.
        step: One training step, or a container of steps: a range, a set, a list. `{None}` has the trajectories without
            a step.
        sample_index: The prompt; compared as a string, so that 7 and "7" are the same prompt.
        rollout_n: The number of the rollout of the prompt; compared as a string.
        validate: True for validation passes only, False for none of them.
        experiment: The experiment's name.
        run: The run's id; its beginning will do.
        status: `completed`, `error`, `cancelled` or `truncated`.
        reward: The lowest and the highest reward, both included; None for an open end.
        on_problem: Called for everything that can't be read and is skipped, such as a torn frame; by default a
            warning is logged.

    Returns:
        An iterator that holds the index entries of one bundle at a time, of the steps that match. A step's training
        comes before its validation.

    Raises:
        NoTracesError: The folder doesn't exist or holds no traces.
    """
    selection = Selection(step, sample_index, rollout_n, validate, experiment, run, status, reward)
    return _trajectories(find_trace_files(folder, selection), folder, selection, on_problem or _log)


def _log(problem: ReadProblem) -> None:
    _logger.warning("%s", printable(str(problem)))


def _trajectories(
    files: list[TraceFile],
    folder: str | PathLike[str],
    selection: Selection,
    on_problem: Callable[[ReadProblem], None],
) -> Iterator[RecordedTrajectory]:
    cache = LineCache()

    def parts_of(file: TraceFile) -> list[Part]:
        return StoredFile(file, cache, on_problem).parts()

    def find(trace_id: str) -> list[Part]:
        everything = (part for file in find_trace_files(folder) for part in parts_of(file))
        return [part for part in everything if part[1].trace_id == trace_id]

    def takes_step(row: IndexEntry) -> bool:
        return selection.takes_step(row.step, validate=row.validate is True)

    # Journals, and files outside our folders: only their lines have the step.
    # Spans without a step: their writer had forgotten the trace, or another program wrote the root.
    loose = parts_by_trace(
        (file, without_summary(row))
        for bundle in (None, NO_STEPS)
        for each in files
        if each.bundle == bundle
        for file, row in parts_of(each)
    )
    if any(file.bundle is None for file in files):
        # Again, now that the journals are read: a trajectory that has ended meanwhile is in a bundle.
        files = find_trace_files(folder, selection)
    # The files of each bundle, training and validation together, and the loose traces of its steps.
    bundles: dict[tuple[bool, int], tuple[list[TraceFile], list[str]]] = {}
    for each in files:
        if each.bundle not in (None, NO_STEPS):
            bundles.setdefault(each.bundle[:2], ([], []))[0].append(each)
    for trace_id, parts in loose.items():
        step = main_row(parts).step
        place = (True, 0) if step is None else (False, bundle_start(step))
        bundles.setdefault(place, ([], []))[1].append(trace_id)
    for _, (placed, ids) in sorted(bundles.items()):
        own = [
            part
            for each in placed
            for part in parts_of(each)
            # A part without a step is joined with others first.
            if part[1].step is None or takes_step(part[1])
        ]
        ids += [row.trace_id for _, row in own]
        joined = [part for trace_id in ids if trace_id in loose for part in loose.pop(trace_id)]
        rows = ((main_row(parts), parts) for parts in parts_by_trace([*own, *joined]).values())
        found = (each for each in rows if takes_step(each[0]) and selection.takes(each[0]))
        waiting = sorted(found, key=_order_of)[::-1]
        while waiting:
            # Not kept: it holds its spans once they were read.
            yield RecordedTrajectory(*waiting.pop(), find)


def _order_of(found: tuple[IndexEntry, Sequence[Part]]) -> tuple[bool, int, bool]:
    row, _ = found
    return row.step is None, row.step or 0, row.validate is True


def without_summary(row: IndexEntry) -> IndexEntry:
    """Return a row that takes little memory: a spool has millions, each a part of a trajectory."""
    if b'"late":{' in row.summary:
        return row
    return IndexEntry._make([*(intern(value) if type(value) is str else value for value in row[:-1]), b""])


def parts_by_trace(parts: Iterable[Part]) -> dict[str, list[Part]]:
    """Return the parts of each trace; a line that comes twice counts once."""
    traces: dict[str, list[Part]] = {}
    known: set[tuple[Any, ...]] = set()
    for part in parts:
        key = _line_of(part[1])
        if key not in known:
            known.add(key)
            traces.setdefault(key[0], []).append(part)
    return traces


def main_row(parts: Sequence[Part]) -> IndexEntry:
    """Return the row of the part that represents a trajectory, whatever their order.

    That is the part with the root; else the first that started, among those with a step if there are any.
    """
    if len(parts) == 1:
        return parts[0][1]
    rows = sorted(
        (row for _, row in parts),
        key=lambda row: (not row.has_root, row.step is None, row.start_time, row.name),
    )
    main = rows[0]
    if main.step is None and (tagged := next((row for row in rows if row.step is not None), None)) is not None:
        # A root of another program.
        main = main._replace(**{name: getattr(tagged, name) for name in _TAGS})
    rewards = [(_reward_time(row), row.reward) for row in rows if row.reward is not None]
    return main._replace(reward=max(rewards)[1]) if rewards else main


def _reward_time(row: IndexEntry) -> int:
    """Return the time at which the reward of a row was known, 0 of a root; of several the latest counts."""
    with suppress(LookupError, TypeError, ValueError):
        # The facts of a root's line are longer, and seldom have a late reward.
        if not row.has_root or b'"late":{' in row.summary:
            return int(orjson.loads(row.summary)["late"]["reward"])
    return 0 if row.has_root else row.end_time


def read_together(trajectories: Sequence[RecordedTrajectory]) -> None:
    """Read the spans of trajectories, each line once: a line of a spool has spans of many trajectories.

    One whose spans can't be read raises when they are used.
    """
    lines: list[list[list[ReadableSpan]]] = [[[] for _ in each.parts] for each in trajectories]
    places = sorted(
        (part[0].file.path, part[1].offset, number, at)
        for number, each in enumerate(trajectories)
        for at, part in enumerate(each.parts)
    )
    for _, _, number, at in places:
        file, row = trajectories[number].parts[at]
        with suppress(OSError, RolloutTraceError, ValueError):
            lines[number][at] = file.read_spans(row)
    for each, read in zip(trajectories, lines, strict=True):
        if all(read):
            each._spans = each._joined(read)  # noqa: SLF001 - of this module


@dataclass(init=False, repr=False, eq=False, slots=True)
class RecordedTrajectory:
    """A recorded trajectory, made by `read_trajectories`; its spans are read on first use."""

    _row: IndexEntry
    parts: Sequence[Part]
    """Its lines: the file and the index's row of each."""
    _find: Callable[[str], Sequence[Part]]
    _known: Callable[[str], TrajectorySummary | None]
    _spans: list[ReadableSpan] | None
    # Attributes, not properties, which take ten times as long: there are thousands of trajectories.
    trace_id: str
    """The trace id, 32 hexadecimal digits."""
    step: int | None
    """The training step, if it is an integer."""
    sample_index: int | str | None
    """The prompt in the dataset."""
    rollout_n: int | str | None
    """The number of the rollout of the prompt."""
    validate: bool
    """True if it is part of a validation pass."""
    experiment_name: str | None
    """The experiment given to `init`."""
    status: str | None
    """`completed`, `error`, `cancelled` or `truncated`; None without a root."""
    reward: float | None
    """The reward given to `annotate`."""
    start_time: int
    """The start of its first span, in nanoseconds since 1970."""
    end_time: int
    """The end of its root, in nanoseconds since 1970; without a root, its last span's."""
    has_root: bool
    """False while it is running, and if its process ended before it did."""
    name: str
    """The root's name; without a root, one of its spans'."""
    project_name: str | None
    """The project given to `init`."""
    run_id: str | None
    """The run of its process."""

    def __init__(
        self,
        row: IndexEntry,
        parts: Sequence[Part],
        find: Callable[[str], Sequence[Part]],
        known: Callable[[str], TrajectorySummary | None] = lambda trace_id: None,
    ) -> None:
        self._row = row
        self.parts = parts
        self._find = find
        self._known = known
        self._spans = None
        for name in _COPIED:
            setattr(self, name, getattr(row, name))
        self.validate = row.validate is True
        if len(parts) > 1:
            self.start_time = min(entry.start_time for _, entry in parts)
            if not self.has_root:
                self.end_time = max(entry.end_time for _, entry in parts)

    def __repr__(self) -> str:
        tags = f"step={self.step!r} sample_index={self.sample_index!r} rollout_n={self.rollout_n!r}"
        return f"<RecordedTrajectory {self.trace_id} {tags} status={self.status!r} reward={self.reward!r}>"

    def _repr_html_(self) -> str:
        from otel_rollout.text.html_table import html_table

        names = ("trace_id", "experiment_name", "step", "sample_index", "rollout_n", "validate", "status", "reward")
        return html_table((*names, "seconds"), [(*(getattr(self, name) for name in names), self.duration)], self.name)

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The root's scalar attributes without payload, read from its spans; without a root, the tags.

        Raises:
            UnreadableTraceError: The file is damaged or gone.
        """
        builder = facts.SummaryBuilder(int(self.trace_id, 16))
        # It keeps the attributes all the same.
        builder.give_up()
        builder.add(self._read_once())
        return {clean(key): clean(value) for key, value in builder.attributes.items()}

    @property
    def shapes(self) -> Sequence[SpanShape]:
        """The places of its spans on a timeline.

        Raises:
            UnreadableTraceError: The file is damaged or gone.
        """
        return shapes_of(self._read_once())

    @property
    def failed(self) -> bool:
        """True if it ended in an error; a cancelled one did not."""
        if self.status is not None:
            return self.status == "error"
        return self.has_root and self._row.status_code == ERROR

    @property
    def duration(self) -> float:
        """The seconds from its start to its end."""
        return (self.end_time - self.start_time) / 1e9

    @property
    def span_count(self) -> int:
        """The number of its spans."""
        if len(self.parts) > 1 and any(file.file.is_journal for file, _ in self.parts):
            # After a crash a journal may have spans that are in a frame as well.
            with suppress(UnreadableTraceError):
                return len(self.spans)
        return sum(row.spans for _, row in self.parts)

    @property
    def size_bytes(self) -> int:
        """Its size in bytes as OTLP."""
        return sum(row.bytes for _, row in self._distinct_parts())

    @property
    def stored_bytes(self) -> int:
        """Its size in bytes on disk, without the index."""
        return sum(file.stored_bytes(row) for file, row in self.parts)

    @property
    def summary(self) -> TrajectorySummary:
        """All its facts without its payload.

        Raises:
            UnreadableTraceError: The index doesn't have it, and the file is damaged or gone.
        """
        if (known := self._known(self.trace_id)) is not None:
            return known
        listed = None if self.lacks_inferred else self.listed_summary
        return listed or self.read_summary()

    @property
    def lacks_inferred(self) -> bool:
        """True if its index lacks the facts that only the messages show."""
        # In a text, a quote has a backslash before it.
        return any(_NOT_INFERRED in row.summary for _, row in self.parts)

    @property
    def listed_summary(self) -> TrajectorySummary | None:
        """The facts that its index has; None if it lacks others than those that are inferred."""
        found = [summary_of_row(row, file.worker) for file, row in self.parts]
        parts = [part for part in found if part is not None]
        # A journal's spans may be in a frame, too.
        if len(parts) < len(found) or (len(parts) > 1 and any(file.file.is_journal for file, _ in self.parts)):
            return None
        merged = parts[0] if len(parts) == 1 else merge_late(parts)
        if merged is not None:
            # A line may have spans of other traces, too.
            merged.stored_bytes = self.stored_bytes
        return merged

    def read_summary(self) -> TrajectorySummary:
        """Return its facts, from its spans.

        Raises:
            UnreadableTraceError: The file is damaged or gone.
        """
        return replace(
            summarise_trajectory(self._read_once()),
            worker=self.parts[0][0].worker,
            bytes=self.size_bytes,
            stored_bytes=self.stored_bytes,
        )

    @property
    def spans(self) -> list[ReadableSpan]:
        """All of its spans, the root last; read on first use, and each parsed when one of its attributes is read.

        Raises:
            UnreadableTraceError: The file is damaged or gone; a damaged span raises it when it is parsed.
        """
        if self._spans is None:
            try:
                for attempt in range(_ATTEMPTS):
                    try:
                        self._spans = self._joined([file.read_spans(row) for file, row in self.parts])
                        break
                    except MovedError:
                        # It was running when it was listed: its spans have moved from the journal to a frame, or to the
                        # journal of a receiver that took a killed one's over, and from there again.
                        if attempt == _ATTEMPTS - 1:
                            raise
                        self.parts = self._find(self.trace_id) or self.parts
            except RolloutTraceError:
                raise
            except (OSError, ValueError) as error:
                raise UnreadableTraceError(f"the trajectory {self.trace_id} can't be read: {error}") from error
        return self._spans or []

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The main conversation in the form of OpenAI's chat completions; sub-agents have others.

        Raises:
            UnreadableTraceError: The file is damaged or gone.
        """
        from otel_rollout.facts.conversations import conversations_of
        from otel_rollout.facts.utterances import utterances_of
        from otel_rollout.messages import as_openai

        spans = self.spans
        found = conversations_of(spans)
        main = next((each.id for each in found.all if each.kind == "main"), 1)
        told = (each for each in utterances_of(spans, found) if each.conversation == main)
        # An error of a generation is no message of the model.
        return as_openai(each.message for each in told if not (each.is_error and each.message.role == "assistant"))

    def otlp_json(self) -> bytes:
        """Return it as one line of OTLP JSON, which people read and OTLP receivers take.

        Raises:
            UnreadableTraceError: The file is damaged or gone, or has values that OTLP has no type for.
        """
        spans = self.spans
        try:
            return otlp.json_of_request(otlp.encode_spans(spans))
        except Exception as error:
            raise UnreadableTraceError(f"the trajectory {self.trace_id} can't be encoded as OTLP: {error}") from error

    def _distinct_parts(self) -> Sequence[Part]:
        """Return its lines, except for lines of a journal whose spans are in frames; a crash leaves them there."""
        if len(self.parts) < 2 or not any(file.file.is_journal for file, _ in self.parts):
            return self.parts
        kept: list[Part] = []
        known: set[bytes] = set()
        for file, row in sorted(self.parts, key=lambda part: part[0].file.is_journal):
            with suppress(OSError, ValueError, UnreadableTraceError):
                ids = set(file.read_ids(row))
                if kept and ids <= known:
                    continue
                known |= ids
            kept.append((file, row))
        return kept

    def _read_once(self) -> list[ReadableSpan]:
        """Return its spans without keeping them."""
        return copy(self).spans

    @staticmethod
    def _joined(lines: Sequence[list[ReadableSpan]]) -> list[ReadableSpan]:
        if len(lines) == 1:
            return lines[0]
        spans = {span.context.span_id: span for line in lines for span in line if span.context}
        return sorted(spans.values(), key=lambda span: span.parent is None)


_COPIED: Final = tuple(name for name in IndexEntry._fields if name in RecordedTrajectory.__slots__)
