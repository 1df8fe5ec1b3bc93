"""`annotate`: the reward of the current trajectory, its input and output, and other attributes of its root."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import context as context_api

from otel_rollout import semconv
from otel_rollout.capture.scalars import read_attribute, read_number, read_scalar
from otel_rollout.safety.log_once import warn_once
from otel_rollout.spans import runtime
from otel_rollout.spans.context import SILENCE, current_frame
from otel_rollout.spans.trajectory_state import TrajectoryState
from otel_rollout.values.array_types import is_compiling
from otel_rollout.values.object_reading import class_name
from otel_rollout.values.sanitize import replace_surrogates
from otel_rollout.values.snapshot import plain_value, snapshot
from otel_rollout.values.stream import with_text_keys

if TYPE_CHECKING:
    from otel_rollout.spans.runtime import RunningPipeline

__all__ = ["PREFIX", "TOTALS", "annotate"]

PREFIX: Final = "rollout."
TOTALS: Final = (semconv.TURNS, semconv.INPUT_TOKENS, semconv.OUTPUT_TOKENS)
"""Attributes that we count ourselves, unless `annotate` sets them."""
_TAKEN: Final = {
    *semconv.TAGS,
    *(tag.removeprefix(PREFIX) for tag in semconv.TAGS),
    # Backends turn dots into nested objects: a value at `rollout` would leave no place for `rollout.step`.
    *(
        prefix
        for attribute in semconv.ATTRIBUTES
        for prefix in accumulate(attribute.key.split(".")[:-1], "{}.{}".format)
    ),
    *(attribute.key for attribute in semconv.ATTRIBUTES if attribute not in semconv.ANNOTATIONS),
}.difference(TOTALS)
"""Names that `annotate` doesn't set: they have a meaning already, or hold other attributes."""
_BELOW: Final = tuple(f"{attribute.key}." for attribute in semconv.ATTRIBUTES)
"""Prefixes that a name must not have: backends would nest its value inside another."""

MAX_FREE_NAMES: Final = 1000
_free_names: Final[set[str]] = set()
"""Names that passed the check before; trajectories repeat them."""

MAX_REWARD_PARTS: Final = 1000


def annotate(
    *,
    reward: float | None = None,
    reward_parts: Mapping[str, Any] | None = None,
    status: str | None = None,
    input: Any = None,  # noqa: A002 - the field's word for it
    output: Any = None,
    **attributes: Any,
) -> None:
    """Set attributes of the current trajectory's root; one that can't be set is logged once.

    Args:
        reward: The trajectory's reward.
        reward_parts: Its parts by name, such as `{"format": 0.2, "correct": True}`: numbers, booleans, texts, or
            objects with a `value` and an `explanation`. A second call adds parts and replaces those of the same name.
        status: `completed`, `error`, `cancelled` or `truncated`; without it, the way the `with` block is left decides.
        input: The trajectory's input, such as the prompt; any value.
        output: Its output, such as the answer; any value.
        **attributes: More attributes of the root: texts, numbers, booleans, or lists of one of these.
    """
    pipeline = runtime.pipeline
    if pipeline is None or is_compiling():
        return
    _annotate(pipeline, reward, reward_parts, status, input, output, attributes)


def _annotate(
    pipeline: RunningPipeline,
    reward: Any,
    reward_parts: Any,
    status: Any,
    input_value: Any,
    output_value: Any,
    attributes: dict[str, Any],
) -> None:
    frame = current_frame(context_api.get_current())
    if frame is SILENCE:
        return
    if frame is None or frame.trajectory is None:
        warn_once("annotate outside", "annotate() was called outside rollout_trace_attr: call it in the block")
        return
    trajectory, root = frame.trajectory, frame.trajectory.root
    if root is None:
        warn_once("annotate late", "annotate() was called after its trajectory had ended: it comes too late")
        return
    if not root.is_recording():
        warn_once(
            "annotate elsewhere",
            "annotate() was called inside extract(carrier): the root is in the process of inject(), which does "
            "not get the values; return them, and call annotate() there",
        )
        return
    if reward is not None:
        number = read_number(reward)
        if number is not None:
            trajectory.annotations[semconv.REWARD] = number
        else:
            _leave_out("reward", f"a reward is a number, not {_type_name(reward)}")
    if reward_parts is not None:
        _add_reward_parts(trajectory, reward_parts)
    if status is not None:
        status = read_scalar(status)
        if type(status) is str and status in semconv.STATUSES:
            trajectory.annotations[semconv.STATUS] = status
        else:
            given = repr(status[:100]) if type(status) is str else _type_name(status)
            _leave_out("status", f"a status is one of {', '.join(semconv.STATUSES)}, not {given}")
    if input_value is not None:
        pipeline.tracer.set_input(root, snapshot(input_value, pipeline.snapshot_budget))
    if output_value is not None:
        pipeline.tracer.set_output(root, snapshot(output_value, pipeline.snapshot_budget))
    for key, value in attributes.items():
        if key not in _free_names and not _is_free(key):
            _leave_out(key, "this name is reserved")
            continue
        attribute = read_attribute(value)
        if attribute is None:
            right = "a text, a number, a boolean or a list of one of these"
            _leave_out(key, f"an attribute is {right}, not {_type_name(value)}")
        else:
            trajectory.annotations[replace_surrogates(key)] = attribute


def _add_reward_parts(trajectory: TrajectoryState, given: Any) -> None:
    parts = plain_value(given)
    if type(parts) is not dict:
        _leave_out("reward_parts", f"the parts of a reward are a mapping of names to values, not {_type_name(given)}")
        return
    known = {**trajectory.annotations.get(semconv.REWARD_PARTS, {}), **with_text_keys(parts.items())}
    if len(known) > MAX_REWARD_PARTS:
        _leave_out("reward_parts", f"a reward has at most {MAX_REWARD_PARTS:,} parts")
    elif known:
        trajectory.annotations[semconv.REWARD_PARTS] = known


def _is_free(name: str) -> bool:
    if name in _TAKEN or name.startswith(_BELOW):
        return False
    if len(_free_names) < MAX_FREE_NAMES:
        _free_names.add(name)
    return True


def _leave_out(name: str, reason: str) -> None:
    warn_once(f"annotate {name}", "annotate(%s=…): %s; it is ignored", name, reason)


def _type_name(value: Any) -> str:
    return class_name(type(value)).rpartition(".")[2]
