"""A summary's columns in an index, as `SummaryBuilder.columns` makes them, and the summary that they stand for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import orjson

from otel_rollout import semconv
from otel_rollout.facts.span_figures import text_of
from otel_rollout.facts.span_shapes import Shapes
from otel_rollout.facts.summary_builder import SummaryBuilder
from otel_rollout.facts.trajectory_summary import Provenance, SpanError, ToolCounts, TrajectorySummary
from otel_rollout.text.sanitize import INT64_MAX, INT64_MIN

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
        shape = columns["shape"]
        return TrajectorySummary(
            **identity,
            **dict(zip(_SCALARS, scalars, strict=True)),
            reward_parts=_reward_parts_of(columns["reward_parts"]),
            late=_late_of(columns["late"]),
            tools=_tools_of(columns["tools"]),
            errors=_errors_of(columns["errors"]),
            turn_hashes=_hashes_of(columns["turn_hashes"]),
            shape=shape if isinstance(shape, Shapes) else Shapes(shape),
            provenance=_provenance_of(columns["provenance"]),
        )
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"no summary: {error}") from error


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


def _reward_parts_of(parts: Any) -> dict[str, float]:
    if type(parts) is not dict or not all(part is not None and _is_number(part) for part in parts.values()):
        raise ValueError("reward_parts has another form")
    return parts


def _late_of(times: Any) -> dict[str, int]:
    if type(times) is not dict or not all(map(_is_count, times.values())):
        raise ValueError("late has another form")
    return times


def _tools_of(tools: Any) -> dict[str, ToolCounts]:
    counted = {}
    for name, (calls, errors) in tools.items():
        if not _is_count(calls) or not _is_count(errors) or errors > calls:
            raise ValueError("tools has another form")
        counted[name] = ToolCounts(calls, errors)
    return counted


def _errors_of(errors: Any) -> tuple[SpanError, ...]:
    if type(errors) is not list:
        raise ValueError("errors has another form")
    found = tuple([SpanError(*error) for error in errors])
    if any(tuple(map(type, error)) != (str, str, str, int) for error in found):
        raise ValueError("errors has another form")
    return found


def _hashes_of(hashes: Any) -> tuple[str, ...]:
    if type(hashes) not in (list, tuple) or not set(map(type, hashes)) <= {str}:
        raise ValueError("turn_hashes has another form")
    return tuple(hashes)


def _provenance_of(numbers: Any) -> Provenance:
    if (
        type(numbers) is not list
        or len(numbers) != 8
        or set(map(type, numbers)) != {int}
        or min(numbers) < INT64_MIN
        or max(numbers) >= 2**64
    ):
        raise ValueError("provenance has another form")
    *main, prompt, answer, finish, has_totals = numbers
    return Provenance(tuple(main), prompt, answer, finish, bool(has_totals))


_COUNTS: Final = (
    "repeated_calls",
    "unknown_tool_calls",
    "unparsed_tool_calls",
    "prefix_breaks",
    "dropped_spans",
    "truncated_bytes",
    "redacted",
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
