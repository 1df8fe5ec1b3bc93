"""`annotate`: the reward of a trajectory, its advantage and fate, its input and output, and other attributes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from opentelemetry import context as context_api
from opentelemetry.trace import SpanContext

from otel_rollout import semconv
from otel_rollout.counts import lost_annotations, repeated_annotations
from otel_rollout.guard.log_once import pass_on, warn_once
from otel_rollout.record import runtime
from otel_rollout.record.attribute_values import read_attribute, read_number, read_scalar
from otel_rollout.record.context import SILENCE, Agent, current_frame
from otel_rollout.record.fields import class_name
from otel_rollout.record.handle import HasHandle, ended, place_of
from otel_rollout.record.readers import is_compiling
from otel_rollout.record.snapshot import plain_value, take_snapshot
from otel_rollout.record.trajectory_state import TrajectoryState
from otel_rollout.text.near_miss import misspelt_argument
from otel_rollout.text.plain_json import with_text_keys
from otel_rollout.text.sanitize import replace_surrogates

if TYPE_CHECKING:
    from otel_rollout.record.runtime import RunningPipeline
    from otel_rollout.record.trajectory import Trajectory

CURRENT: Final[Any] = object()
"""No trajectory is given. None is one that nobody found: its values must not become the current one's."""
LATE_NAME: Final = "annotate"
"""The span of what is known after a trajectory's end."""

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
_WHOLE: Final = (*TOTALS, semconv.STALENESS, semconv.MIN_WEIGHTS_VERSION, semconv.MAX_WEIGHTS_VERSION)
_FACTS: Final = {key.removeprefix(PREFIX): key for key in (*semconv.MEASURES, *_WHOLE, semconv.FINISH_REASON)}
"""Facts by the names that they have in tables and on pages."""
_BELOW: Final = tuple(f"{attribute.key}." for attribute in semconv.ATTRIBUTES)
"""Prefixes that a name must not have: backends would nest its value inside another."""

MAX_FREE_NAMES: Final = 1000
_free_names: Final[set[str]] = set()
"""Names that passed the check before; trajectories repeat them."""

MAX_REWARD_PARTS: Final = 1000

MAX_KNOWN_FACTS: Final = 32_768
_known_facts: Final[list[dict[int, int]]] = [{}, {}]
"""By trajectory and name, a hash of the value that came last after the end: the newer facts, and as many older ones,
in some 8 MB together."""


def annotate(
    *,
    trajectory: Trajectory | str | None = CURRENT,
    reward: float | None = None,
    rewards: Mapping[str, Any] | None = None,
    advantage: float | None = None,
    fate: str | None = None,
    status: str | None = None,
    input: Any = None,  # noqa: A002 - the field's word for it
    output: Any = None,
    compacted: bool = False,
    trained: bool | None = None,
    **attributes: Any,
) -> None:
    """Set attributes of a trajectory's root, at any time; one that can't be set is logged once and counted.

    After the trajectory's end, and from another process, the values are a span of their own below the root, which no
    figure of the trajectory's time counts. The last value by the clock of the caller counts.

    Args:
        trajectory: A trajectory, or the text of its `handle`, from any process; without it, the current one.
        reward: The trajectory's reward.
        rewards: Its parts by name, such as `{"format": 0.2, "correct": True}`: numbers, booleans, texts, or objects
            with a `value` and an `explanation`. A second call adds parts and replaces parts of the same name.
        advantage: Its advantage in training.
        fate: Its use in training: `trained`, `stale`, `filtered`, `failed` or `surplus`.
        status: `completed`, `error`, `cancelled` or `truncated`; without it, the way the `with` block is left decides.
            Only before the end.
        input: The trajectory's input, such as the prompt; any value. Only before the end.
        output: Its output, such as the answer; any value. Only before the end.
        compacted: True if the next generation's messages stand in for a history that was too long: it begins another
            conversation. In `subagent`, the next generation there. Only before the end.
        trained: True if the conversation is training data, and its forks and compactions. In `subagent`, the
            sub-agent's; elsewhere, the main one.
        **attributes: More attributes: texts, numbers, booleans, or lists of one of these. A name of a column is that
            fact, such as `entropy`, `staleness` and `log_prob_gap`.
    """
    pipeline = runtime.pipeline
    if (pipeline is None and trajectory is CURRENT) or is_compiling():
        return
    facts = Facts(reward, rewards, advantage, fate, status, input, output, compacted, trained, attributes)
    try:
        if trajectory is not CURRENT:
            _annotate_other(pipeline, trajectory, facts)
        elif pipeline is not None:
            _annotate_current(pipeline, facts)
    except BaseException:
        pass_on("annotating")


class Facts(NamedTuple):
    """The arguments of `annotate`."""

    reward: Any
    rewards: Any
    advantage: Any
    fate: Any
    status: Any
    input: Any
    output: Any
    compacted: Any
    trained: Any
    attributes: dict[str, Any]


def _annotate_current(pipeline: RunningPipeline, facts: Facts) -> None:
    frame = current_frame(context_api.get_current())
    if frame is SILENCE:
        return
    if frame is None or frame.trajectory is None or frame.span is None:
        lose_annotation("no trajectory", "annotate() was called outside rollout_trace_attr: call it in the block")
        return
    root = frame.trajectory.root
    if frame.agent is not None:
        facts = _annotate_agent(frame.agent, facts)
    if root is not None and root.is_recording():
        _annotate_running(pipeline, frame.trajectory, facts)
    else:
        # It has ended, or runs in the process of `inject()`.
        _annotate_late(pipeline, (root or frame.span).get_span_context(), frame.trajectory.tags, facts)


def _annotate_other(pipeline: RunningPipeline | None, given: Any, facts: Facts) -> None:
    handle = read_scalar(given)
    if issubclass(type(given), HasHandle):
        state = given._state  # noqa: SLF001 - its class is the API's
        if pipeline is not None and state is not None and state.root is not None and state.root.is_recording():
            _annotate_running(pipeline, state, facts)
            return
        handle = given.handle
    if type(handle) is str and not handle:
        # Its process didn't trace it.
        return
    place = place_of(handle) if type(handle) is str else None
    if place is None:
        lose_annotation("unknown trajectory", "annotate(trajectory=…) was given no trajectory, and no handle of one")
    elif pipeline is None:
        lose_annotation(
            "tracing is off",
            "annotate(trajectory=…) was called while tracing is off in this process: call otel_rollout.init() before, "
            "and shutdown() after it",
        )
    elif place.tags.get(semconv.EXPERIMENT_NAME) != pipeline.experiment_name:
        lose_annotation(
            "another experiment",
            f"annotate(trajectory=…) was given a trajectory of another experiment than {pipeline.experiment_name!r}",
        )
    elif place.run is not None and pipeline.settings.run_id not in (None, place.run):
        lose_annotation("another run", "annotate(trajectory=…) was given a trajectory of another run")
    else:
        _annotate_late(pipeline, place.root, place.tags, facts)


def _annotate_agent(agent: Agent, facts: Facts) -> Facts:
    """Keep what is known of a sub-agent with it, and return the rest."""
    is_compacted, trained = _read_flag("compacted", facts.compacted), _read_flag("trained", facts.trained)
    if agent.span.is_recording():
        agent.is_compacted = is_compacted or agent.is_compacted
        if trained is not None:
            agent.span.set_attribute(semconv.TRAINED, trained)
    else:
        for name, flag in (("compacted", is_compacted or None), ("trained", trained)):
            if flag is not None:
                _leave_out(name, "its sub-agent has ended")
    return facts._replace(compacted=False, trained=None)


def _annotate_running(pipeline: RunningPipeline, trajectory: TrajectoryState, facts: Facts) -> None:
    root = trajectory.root
    if _read_flag("compacted", facts.compacted):
        trajectory.is_compacted = True
    trajectory.annotations.update(_read_numbers(facts))
    if facts.rewards is not None:
        parts = _read_rewards(trajectory.annotations.get(semconv.REWARD_PARTS, {}), facts.rewards)
        if parts:
            trajectory.annotations[semconv.REWARD_PARTS] = parts
    if facts.status is not None:
        status = read_scalar(facts.status)
        if type(status) is str and status in semconv.STATUSES:
            trajectory.annotations[semconv.STATUS] = status
        else:
            _leave_out("status", f"a status is one of {', '.join(semconv.STATUSES)}, not {_shown(status)}")
    if facts.input is not None:
        pipeline.tracer.set_input(root, take_snapshot(facts.input, pipeline.snapshot_budget))
    if facts.output is not None:
        root.output = take_snapshot(facts.output, pipeline.snapshot_budget)
    trajectory.annotations.update(_read_attributes(facts.attributes))


def _annotate_late(pipeline: RunningPipeline, root: SpanContext, tags: dict[str, Any], facts: Facts) -> None:
    """Record what is known after the end as a span below the root."""
    given_early = (
        ("status", facts.status),
        ("input", facts.input),
        ("output", facts.output),
        ("compacted", _read_flag("compacted", facts.compacted) or None),
    )
    for name, value in given_early:
        if value is not None:
            _leave_out(name, "it comes after the trajectory's end, or from another process")
    own = _read_numbers(facts)
    others = _read_attributes(facts.attributes)
    parts = {} if facts.rewards is None else _read_rewards({}, facts.rewards)
    given = [(key.removeprefix(PREFIX), key, value) for key, value in own.items()]
    given += [("rewards", f"{semconv.REWARD_PARTS}.{name}", value) for name, value in parts.items()]
    given += [("attributes", key, value) for key, value in others.items()]
    if not given:
        return
    if parts:
        own[semconv.REWARD_PARTS] = take_snapshot(parts)
    tracer, parent = pipeline.tracer, ended(root).get_span_context()
    attributes = {semconv.SPAN_KIND: "EVALUATOR", semconv.LATE: True}
    span = tracer.start_child(LATE_NAME, parent, TrajectoryState(tags), attributes)
    if span is None:
        return
    try:
        # For backends that join by links: a trace that its backend has closed may not take the parent.
        span.add_link(parent)
        tracer.set_annotations(span, own, others)
    finally:
        span.end()
    _count_repeats(root.trace_id, given)


def _count_repeats(trace_id: int, given: list[tuple[str, str, Any]]) -> None:
    """Count the facts that have come before with the same value, and log the first.

    They are recorded once more all the same: another process may have corrected them meanwhile.
    """
    newer, older = _known_facts
    for argument, name, value in given:
        fact, digest = hash((trace_id, name)), hash(repr(value))
        if newer.get(fact, older.get(fact)) == digest:
            repeated_annotations[argument] += 1
            warn_once(
                "annotate twice",
                "annotate(): this process gave a trajectory the same %s twice after its end; it is recorded again",
                name.removeprefix(PREFIX),
            )
        newer[fact] = digest
    if len(newer) > MAX_KNOWN_FACTS:
        _known_facts[:] = [{}, newer]


def forget_facts() -> None:
    """Forget what came late."""
    _known_facts[:] = [{}, {}]


def _read_numbers(facts: Facts) -> dict[str, Any]:
    """Return the reward, the advantage, the fate and the use in training, by attribute key."""
    found: dict[str, Any] = {}
    for key, noun, given in (
        (semconv.REWARD, "a reward", facts.reward),
        (semconv.ADVANTAGE, "an advantage", facts.advantage),
    ):
        if given is None:
            continue
        number, name = read_number(given), noun.partition(" ")[2]
        if number is None:
            _leave_out(name, f"{noun} is a number, not {_type_name(given)}")
        else:
            found[key] = number
            if not isfinite(number):
                warn_once(f"{name} not finite", "annotate(%s=%s): it is kept, but counts as no %s", name, number, name)
    if facts.fate is not None:
        fate = read_scalar(facts.fate)
        if type(fate) is str and fate in semconv.FATES:
            found[semconv.FATE] = fate
        else:
            _leave_out("fate", f"a fate is one of {', '.join(semconv.FATES)}, not {_shown(fate)}")
    trained = _read_flag("trained", facts.trained)
    if trained is not None:
        found[semconv.TRAINED] = trained
    return found


def _read_flag(name: str, given: Any) -> bool | None:
    flag = read_scalar(given)
    if type(flag) is bool:
        return flag
    if flag is not None:
        _leave_out(name, f"it is True or False, not {_type_name(given)}")
    return None


def _read_rewards(known: dict[str, Any], given: Any) -> dict[str, Any]:
    parts = plain_value(given)
    if type(parts) is not dict:
        _leave_out("rewards", f"the parts of a reward are a mapping of names to values, not {_type_name(given)}")
        return {}
    found = {**known, **with_text_keys(parts.items())}
    if len(found) > MAX_REWARD_PARTS:
        _leave_out("rewards", f"a reward has at most {MAX_REWARD_PARTS:,} parts")
        return {}
    return found


def _read_attributes(given: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key not in _free_names and not _is_free(key):
            _leave_out(key, "this name is reserved")
            continue
        attribute = read_attribute(value)
        if attribute is None:
            right = "a text, a number, a boolean or a list of one of these"
            _leave_out(key, f"an attribute is {right}, not {_type_name(value)}")
        else:
            name = _FACTS.get(key, key)
            is_whole = name in _WHOLE and type(attribute) is float and attribute.is_integer()
            found[replace_surrogates(name)] = int(attribute) if is_whole else attribute
    return found


def lose_annotation(reason: str, message: str) -> None:
    """Count a call whose values can't be recorded, and log the first of its kind."""
    lost_annotations[reason] += 1
    warn_once(f"annotate {reason}", "%s; the value is lost", message)


def _is_free(name: str) -> bool:
    if name in _TAKEN or name.startswith(_BELOW):
        return False
    if len(_free_names) < MAX_FREE_NAMES:
        _free_names.add(name)
        if near := misspelt_argument(name, ("trajectory", *Facts._fields[:-1])):
            warn_once(f"near {name}", "annotate(%s=…): did you mean %s? It is kept as an attribute", name, near)
    return True


def _leave_out(name: str, reason: str) -> None:
    lost_annotations[name] += 1
    warn_once(f"annotate {name}", "annotate(%s=…): %s; it is ignored", name, reason)


def _shown(value: Any) -> str:
    return repr(value[:100]) if type(value) is str else _type_name(value)


def _type_name(value: Any) -> str:
    return class_name(type(value)).rpartition(".")[2]
