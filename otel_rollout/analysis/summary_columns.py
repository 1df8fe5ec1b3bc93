"""A summary's columns in an index, as `SummaryBuilder.columns` makes them, and the summary that they stand for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import orjson

from otel_rollout import semconv
from otel_rollout.analysis.span_figures import text_of
from otel_rollout.analysis.span_shapes import Shapes
from otel_rollout.analysis.summary_builder import SummaryBuilder
from otel_rollout.analysis.trajectory_summary import Provenance, SpanError, ToolCounts, TrajectorySummary
from otel_rollout.values.sanitize import INT64_MAX, INT64_MIN

__all__ = ["FIRST_COLUMN", "identity_of", "summary_of", "summary_of_json", "tag_of"]

FIRST_COLUMN: Final = "service_name"
"""The column that the others follow."""
_SHAPE: Final = b',"shape":{'
_PROVENANCE: Final = b',"provenance":['


def summary_of(identity: Mapping[str, Any], columns: Mapping[str, Any]) -> TrajectorySummary:
    """Return a summary.

    Args:
        identity: The fields that `columns` lacks.
        columns: The columns, which another program may have written.

    Raises:
        ValueError: A column has another form.
    """
    values: dict[str, Any] = dict(identity)
    try:
        scalars = _scalars_of(columns)
        types = tuple(map(type, scalars))
        # Nearly all summaries have the same types.
        if types not in _sound_types or not _are_in_range(scalars):
            for name, value, check in zip(_SCALARS, scalars, _SCALAR_CHECKS, strict=True):
                if not check(value):
                    raise ValueError(f"{name} has another form")
            if len(_sound_types) >= _MAX_CACHED:
                _sound_types.clear()
            _sound_types.add(types)
        values.update(zip(_SCALARS, scalars, strict=True))
        for name, check in _CHECKS:
            value = columns[name]
            if not check(value):
                raise ValueError(f"{name} has another form")
            values[name] = value
        values["tools"] = {name: ToolCounts(*counts) for name, counts in columns["tools"].items()}
        if columns["errors"]:
            values["errors"] = tuple([SpanError(*error) for error in columns["errors"]])
        else:
            values["errors"] = ()
        values["turn_hashes"] = tuple(columns["turn_hashes"])
        shape = columns["shape"]
        values["shape"] = shape if isinstance(shape, Shapes) else Shapes(shape)
        *main, reward, training, prompt, answer, finish, has_totals = columns["provenance"]
        values["provenance"] = Provenance(tuple(main), reward, training, prompt, answer, finish, bool(has_totals))
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"no summary: {error}") from error
    return TrajectorySummary(**values)


def summary_of_json(
    identity: Mapping[str, Any], columns: bytes, shape_of_spans: Callable[[], Mapping[str, Any]] | None = None
) -> TrajectorySummary:
    """Return the summary of columns in JSON, without the braces; the shape is parsed on first use.

    Args:
        identity: The fields that `columns` lacks.
        columns: The columns, which another program may have written.
        shape_of_spans: Returns the columns of the shape if that of the columns has another form.

    Raises:
        ValueError: A column has another form.
    """
    # In a text a quote would have a backslash before it.
    start, end = columns.find(_SHAPE), columns.rfind(_PROVENANCE)
    if not 0 <= start < end:
        return summary_of(identity, orjson.loads(b"{%b}" % columns))
    parsed = orjson.loads(b"{%b%b}" % (columns[:start], columns[end:]))
    parsed["shape"] = Shapes(columns[start + len(_SHAPE) - 1 : end], shape_of_spans)
    return summary_of(identity, parsed)


def identity_of(builder: SummaryBuilder) -> dict[str, Any]:
    """Return the fields of a summary that its columns lack."""
    attributes = builder.attributes
    status = text_of(attributes.get(semconv.STATUS)) if builder.has_root else None
    return {
        "trace_id": f"{builder.trace_id:032x}",
        "step": builder.step,
        "sample_index": tag_of(attributes.get(semconv.SAMPLE_INDEX)),
        "rollout_n": tag_of(attributes.get(semconv.ROLLOUT_N)),
        "validate": builder.validate,
        "experiment_name": text_of(attributes.get(semconv.EXPERIMENT_NAME)),
        "project_name": builder.project_name,
        "run_id": builder.run_id,
        "name": builder.name,
        "start_time": builder.start_time,
        "end_time": builder.end_time,
        "has_root": builder.has_root,
        "status": status or ("error" if builder.status_code == 2 else None),
        "reward": builder.reward,
        "spans": builder.spans,
    }


def tag_of(value: Any) -> int | str | None:
    """Return a tag: an integer or a text; None if the value is neither."""
    return value if type(value) is int else text_of(value)


def _is_text(value: Any) -> bool:
    return value is None or type(value) is str


def _is_line(value: Any) -> bool:
    return type(value) is str


def _is_integer(value: Any) -> bool:
    return value is None or (type(value) is int and INT64_MIN <= value <= INT64_MAX)


def _is_total(value: Any) -> bool:
    return value is None or _is_count(value)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= INT64_MAX


def _is_number(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and math.isfinite(value))


def _is_seconds(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf


def _is_parts(value: Any) -> bool:
    return type(value) is dict and all(part is not None and _is_number(part) for part in value.values())


def _is_tools(value: Any) -> bool:
    return type(value) is dict and all(
        type(counts) in (list, tuple) and len(counts) == 2 and all(map(_is_count, counts)) and counts[1] <= counts[0]
        for counts in value.values()
    )


def _is_errors(value: Any) -> bool:
    return type(value) is list and all(
        type(error) in (list, tuple) and [type(each) for each in error] == [str, str, str, int] for error in value
    )


def _is_hashes(value: Any) -> bool:
    return type(value) in (list, tuple) and set(map(type, value)) <= {str}


def _is_provenance(value: Any) -> bool:
    return (
        type(value) is list
        and len(value) == 10
        and set(map(type, value)) == {int}
        and min(value) >= INT64_MIN
        and max(value) < 2**64
    )


_CHECKS: Final[tuple[tuple[str, Callable[[Any], bool]], ...]] = (
    ("reward_parts", _is_parts),
    ("tools", _is_tools),
    ("errors", _is_errors),
    ("turn_hashes", _is_hashes),
    ("provenance", _is_provenance),
)
_COUNTS: Final = (
    "repeated_calls",
    "unknown_tool_calls",
    "unparsed_tool_calls",
    "prefix_breaks",
    "dropped_spans",
    "truncated_bytes",
)
_SECONDS: Final = ("llm_seconds", "tool_seconds", "reward_seconds", "waiting_seconds")
_TOTALS: Final = ("turns", "input_tokens", "output_tokens")
_INTEGERS: Final = ("min_weights_version", "max_weights_version", "staleness")
_CHECKS_OF_SCALARS: Final[Mapping[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(_COUNTS, _is_count),
    **dict.fromkeys(_SECONDS, _is_seconds),
    **dict.fromkeys(("service_name", "finish_reason", "fate", "error_type"), _is_text),
    **dict.fromkeys(("prompt", "answer"), _is_line),
    **dict.fromkeys(_TOTALS, _is_total),
    **dict.fromkeys(_INTEGERS, _is_integer),
    "advantage": _is_number,
}
_SCALARS: Final = tuple(_CHECKS_OF_SCALARS)
_SCALAR_CHECKS: Final = tuple(_CHECKS_OF_SCALARS.values())
_scalars_of: Final[Callable[[Mapping[str, Any]], tuple[Any, ...]]] = itemgetter(*_SCALARS)
_MAX_CACHED: Final = 1024
_sound_types: set[tuple[type, ...]] = set()


def _are_in_range(scalars: Sequence[Any]) -> bool:
    """Return True if numbers, of the right types, are in range, and the advantage is finite."""
    amounts = scalars[: len(_COUNTS) + len(_SECONDS)]
    turns, asked, answered, oldest, newest, staleness, advantage = scalars[-len(_TOTALS) - len(_INTEGERS) - 1 :]
    return (
        min(amounts) >= 0
        and max(amounts) <= INT64_MAX
        and (turns is None or 0 <= turns <= INT64_MAX)
        and (asked is None or 0 <= asked <= INT64_MAX)
        and (answered is None or 0 <= answered <= INT64_MAX)
        and (oldest is None or INT64_MIN <= oldest <= INT64_MAX)
        and (newest is None or INT64_MIN <= newest <= INT64_MAX)
        and (staleness is None or INT64_MIN <= staleness <= INT64_MAX)
        and (advantage is None or math.isfinite(advantage))
    )
