"""One trajectory of a trace folder: what its index says at once, its spans on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout import semconv
from otel_rollout.trace_folder.otlp_json import encode_line
from otel_rollout.trace_folder.stored_file import MovedError, Part

__all__ = ["RecordedTrajectory"]


class RecordedTrajectory:
    """A trajectory as it was recorded; `read` makes them.

    Args:
        parts: The stored lines that hold its spans, at least one.
        find: Finds its lines anew, where they have moved since.
    """

    __slots__ = ("_find", "_main", "_parts", "_spans")

    def __init__(self, parts: Sequence[Part], find: Callable[[str], Sequence[Part]]) -> None:
        self._parts = parts
        self._find = find
        self._spans: list[ReadableSpan] | None = None
        self._main = parts[0][1]
        if len(parts) > 1:
            self._main = next((entry for _, entry in parts if entry.has_root), self._main)

    def __repr__(self) -> str:
        tags = " ".join(f"{key.removeprefix('rollout.')}={self.attributes.get(key)!r}" for key in semconv.TAGS[:3])
        return f"<RecordedTrajectory {self.trace_id} {tags} status={self.status!r} reward={self.reward!r}>"

    @property
    def trace_id(self) -> str:
        """The trace id, 32 hexadecimal digits."""
        return self._main.trace_id

    @property
    def step(self) -> int | None:
        """The training step, where it is a whole number."""
        step = self._main.attributes.get(semconv.STEP)
        return step if type(step) is int else None

    @property
    def sample_index(self) -> int | str | None:
        """Which prompt of the dataset."""
        return self._main.attributes.get(semconv.SAMPLE_INDEX)

    @property
    def rollout_n(self) -> int | str | None:
        """Which rollout of the prompt."""
        return self._main.attributes.get(semconv.ROLLOUT_N)

    @property
    def validate(self) -> bool:
        """Whether it is part of a validation pass."""
        return bool(self.attributes.get(semconv.VALIDATE))

    @property
    def experiment_name(self) -> str | None:
        """The experiment given to `init`."""
        return self.attributes.get(semconv.EXPERIMENT_NAME)

    @property
    def project_name(self) -> str | None:
        """The project given to `init`."""
        return self._main.project_name

    @property
    def run_id(self) -> str | None:
        """The run that it was recorded in."""
        return self._main.run_id

    @property
    def status(self) -> str | None:
        """`completed`, `error`, `cancelled` or `truncated`; None without a root."""
        return self._main.attributes.get(semconv.STATUS) if self._main.has_root else None

    @property
    def failed(self) -> bool:
        """Whether it ended in an error; one that was cancelled did not."""
        if self.status is not None:
            return self.status == "error"
        return self._main.has_root and self._main.status_code == StatusCode.ERROR.value

    @property
    def reward(self) -> float | None:
        """The reward given to `annotate`."""
        reward = self._main.attributes.get(semconv.REWARD)
        return float(reward) if isinstance(reward, (int, float)) else None

    @property
    def name(self) -> str:
        """The root's name; without a root, that of one of its spans."""
        return self._main.name

    @property
    def start_time(self) -> int:
        """When its first span started, in nanoseconds since 1970."""
        # One part is the rule, and these are asked of thousands.
        return self._main.start_time if len(self._parts) == 1 else min(entry.start_time for _, entry in self._parts)

    @property
    def end_time(self) -> int:
        """When its last span ended, in nanoseconds since 1970."""
        return self._main.end_time if len(self._parts) == 1 else max(entry.end_time for _, entry in self._parts)

    @property
    def duration(self) -> float:
        """The seconds from its start to its end."""
        return (self.end_time - self.start_time) / 1e9

    @property
    def has_root(self) -> bool:
        """Whether its root has come: not while it is running, nor if its process ended before it did."""
        return self._main.has_root

    @property
    def span_count(self) -> int:
        """How many spans it has."""
        if len(self._parts) > 1 and any(file.is_journal for file, _ in self._parts):
            # After a crash, a journal still has spans that are in a frame already.
            return len(self.spans)
        return sum(entry.spans for _, entry in self._parts)

    @property
    def size_bytes(self) -> int:
        """How many bytes of OTLP JSON it is."""
        return sum(entry.bytes for _, entry in self._parts)

    @property
    def stored_bytes(self) -> int:
        """How many bytes it takes on disk, without the index."""
        return sum(entry.length for _, entry in self._parts)

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The root's scalar attributes without payload; without a root, the tags."""
        return self._main.attributes

    @property
    def spans(self) -> list[ReadableSpan]:
        """All of its spans, the root last; read on first use.

        Raises:
            OSError: The file is gone or can't be read.
            ValueError: What stands there is no longer a trajectory.
        """
        if self._spans is None:
            try:
                self._spans = self._read()
            except MovedError:
                # It was running when it was listed: its spans have gone from the journal to their final place.
                self._parts = self._find(self.trace_id) or self._parts
                self._spans = self._read()
        return self._spans

    def otlp_json(self) -> bytes:
        """Return it as one line of OTLP JSON, as the `file` exporter writes it and any OTLP receiver takes it."""
        return encode_line(self.spans)

    def _read(self) -> list[ReadableSpan]:
        lines = [file.read_spans(entry) for file, entry in self._parts]
        if len(lines) == 1:
            return lines[0]
        spans = {span.context.span_id: span for line in lines for span in line if span.context}
        return sorted(spans.values(), key=lambda span: span.parent is None)
