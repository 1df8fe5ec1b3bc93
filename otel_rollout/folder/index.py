"""The index of a file of trajectories, so that lists and filters need not read spans.

A line is a JSON object with the fields of `IndexEntry`, and its checksum. What is None, False or a fact's default is
left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import orjson

from otel_rollout import semconv
from otel_rollout.facts.table import DEFAULTS, INFERRED, columns_of
from otel_rollout.folder.lines import seal_of
from otel_rollout.guard.log_once import internal_error
from otel_rollout.text.sanitize import clean

if TYPE_CHECKING:
    from otel_rollout.facts.builder import SummaryBuilder
    from otel_rollout.folder.frames import Frame

Scalar: TypeAlias = str | int | float | bool | None
Json: TypeAlias = bytes


class IndexEntry(NamedTuple):
    """The index's fields for the spans of one trace in one line; docs/reference/trace-folder.md has their meaning."""

    trace_id: str
    start_time: int
    end_time: int
    has_root: bool
    step: int | None
    sample_index: Scalar
    rollout_n: Scalar
    validate: bool | None
    experiment_name: Scalar
    status: Scalar
    reward: float | None
    offset: int
    length: int
    bytes: int
    checksum: str
    spans: int
    status_code: int
    name: str
    project_name: str | None
    run_id: str | None
    summary: Json = b""
    """The other facts, as a JSON object; empty if they could not be had."""


NOT_INFERRED: Final = "not_inferred"
"""The name in the facts of a line that lacks those that readers infer."""
FACTS: Final = b',"facts":'
"""Precedes the other facts in a line; nothing before them is an object."""


def entry_of(builder: SummaryBuilder, frame: Frame, size: int) -> IndexEntry:
    """Return the entry of a trajectory's line.

    Args:
        builder: The facts of its spans.
        frame: Its place in the file, and its checksum.
        size: The size of its request.
    """
    given = builder.attributes.get
    validate = given(semconv.VALIDATE)
    return IndexEntry(
        f"{builder.trace_id:032x}",
        builder.start_time,
        builder.end_time,
        builder.has_root,
        builder.step,
        clean(given(semconv.SAMPLE_INDEX)),
        clean(given(semconv.ROLLOUT_N)),
        None if validate is None else bool(validate),
        clean(given(semconv.EXPERIMENT_NAME)),
        clean(given(semconv.STATUS)),
        builder.reward,
        frame.offset,
        frame.length,
        size,
        frame.checksum,
        builder.spans,
        builder.status_code,
        builder.name,
        builder.project_name,
        builder.run_id,
        _facts_of(builder),
    )


def _facts_of(builder: SummaryBuilder) -> bytes:
    """Return the other facts; none if they can't be had: readers have the spans, and infer what needs the messages."""
    # Readers of an index need no builder.
    from otel_rollout.facts.builder import Collected

    if not builder.is_complete:
        return b""
    try:
        collected = Collected(builder)
        if collected.lacks_users:
            return b""
        facts = {name: value for name, value in columns_of(collected).items() if value != DEFAULTS[name]}
        if not collected.is_exact:
            facts = {name: value for name, value in facts.items() if name not in INFERRED} | {NOT_INFERRED: True}
        return orjson.dumps(facts, default=tuple)
    except Exception:
        internal_error("summarising a trajectory")
        return b""


def index_line(entry: IndexEntry) -> bytes:
    """Return an entry as a sealed line, with its line end."""
    given = zip(entry._fields[:-1], entry, strict=False)
    fields = {name: value for name, value in given if value is not None and value is not False}
    start = orjson.dumps(fields)[:-1]
    if entry.summary:
        start = b"%b%b%b" % (start, FACTS, entry.summary)
    return start + seal_of(start)
