"""Trace uni-agent (https://github.com/verl-project/uni-agent): agents behind a gateway in place of verl's agent loops.

A session is a trajectory. Its agent talks to a gateway in another process, to which the session is only an id: when a
session is created, the gateway gets the trajectory's carrier too.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from opentelemetry.trace import get_current_span

from otel_rollout import semconv
from otel_rollout.guard.log_once import warn_once
from otel_rollout.hooks import Call, Hook, Observer, after
from otel_rollout.hooks.carrier import extract, inject
from otel_rollout.hooks.verl import agent_loop, config, late_rewards
from otel_rollout.hooks.verl.identity import PromptSelection, forget_oldest, identify
from otel_rollout.hooks.verl.rewards import describe_output
from otel_rollout.hooks.verl.rollout import Rollout, rollout_variable
from otel_rollout.record import runtime, trajectory
from otel_rollout.record.annotate import annotate
from otel_rollout.record.attribute_values import read_scalar, read_tag
from otel_rollout.record.recording_span import RolloutSpan
from otel_rollout.record.snapshot import take_snapshot

_SELECTION: Final = "_otel_rollout_selection"
_RUNNING: Final = "_otel_rollout_running"
_MAX_SESSIONS: Final = 100_000

_sessions: Final[OrderedDict[str, dict[str, str]]] = OrderedDict()
"""In the gateway's process, the carriers of trajectories by session id."""


class _Batch(NamedTuple):
    """The running batch: its step, its kind, and the prompts whose dataset index is unique."""

    step: Any
    validate: bool
    trusted: frozenset[str]


_batch: Final[ContextVar[_Batch | None]] = ContextVar("otel-rollout-uni-agent-batch", default=None)


# --- the framework's process


def _start_framework(call: Call, result: Any) -> None:
    config.start_from(call.arguments["rollout_config"].trace)


def _observe_batch(call: Call) -> Observer:
    """Observe `generate_sequences`, which gets a whole batch."""
    framework, prompts = call.receiver, call.arguments["prompts"]
    step = read_scalar(prompts["global_steps"]) if "global_steps" in prompts else -1
    validate, trusted = "validate" in prompts, frozenset[str]()
    if "uid" in prompts and "index" in prompts:
        uids, rows = agent_loop.number_rows(framework, step, validate, prompts["uid"], prompts["index"])
        trusted = frozenset(uid for uid, row in zip(uids, rows, strict=True) if row.is_index_unique)
    return Observer(variable=_batch, value=_Batch(step, validate, trusted))


class _Session(Observer):
    """`_run_session`: a trajectory."""

    variable = rollout_variable

    def __init__(self, call: Call) -> None:
        fields, number = call.arguments["sample_fields"], call.arguments["session_index"]
        batch = _batch.get() or _Batch(call.arguments.get("global_steps", -1), False, frozenset())
        numbers = {"step": batch.step, "sample_index": fields.get("index"), "rollout_n": number}
        uid = None if fields.get("uid") is None else str(read_tag(fields["uid"]))
        identity = identify(numbers, {**fields, "session_id": number}, is_index_trusted=uid in batch.trusted)
        self._framework = call.receiver
        self._state = vars(call.receiver)
        selection = self._state.setdefault(_SELECTION, PromptSelection())
        is_traced = selection.is_traced(batch.step, batch.validate, uid, config.max_samples())
        attributes = identity.attributes()
        if fields.get("data_source") is not None:
            attributes[semconv.DATA_SOURCE] = str(read_tag(fields["data_source"]))
        self.value = Rollout(identity, is_traced, attributes, fields.get("raw_prompt"), validate=batch.validate)
        self._exception: tuple[Any, Any, Any] = (None, None, None)
        self._trajectory: trajectory.Trajectory | None = None
        self._state[_RUNNING] = self._state.get(_RUNNING, 0) + 1

    def enter(self) -> None:
        """Begin the trajectory."""
        rollout = self.value
        step, sample_index, rollout_n, *_ = rollout.identity
        self._trajectory = trajectory.rollout_trace_attr(
            sample_index, step, rollout_n, "agent_loop", rollout.validate, rollout.is_traced
        )
        self._trajectory.__enter__()
        if rollout.is_traced:
            content = None if rollout.messages is None else {"messages": list(rollout.messages)}
            annotate(input=content, **rollout.attributes)

    def end(self, result: Any) -> None:
        """Record reward and final metrics."""
        rollout, outputs = self.value, result[0]
        if not outputs:
            return
        if not rollout.validate:
            late_rewards.remember(self._framework)
        if rollout.is_traced:
            rollout.stop_reason = (outputs[-1].extra_fields or {}).get("finish_reason")
            attributes, output, status = describe_output(outputs, rollout, response_limit=None)
            parts = output.get("reward_extra_info")
            annotate(reward=output["reward"], rewards=parts, status=status, output=output, **attributes)

    def fail(self, error: BaseException) -> None:
        self._exception = (type(error), error, error.__traceback__)

    def leave(self) -> None:
        if self._trajectory is not None:
            self._trajectory.__exit__(*self._exception)
            self._trajectory = None

    def close(self) -> None:
        """Request a flush of the queues if no session runs."""
        self._state[_RUNNING] = self._state.get(_RUNNING, 1) - 1
        pipeline = runtime.pipeline
        if self._state[_RUNNING] <= 0 and pipeline is not None:
            pipeline.request_flush()


class _Creation(Observer):
    """`GatewayManager.create_session`: sends the gateway the carrier, before the agent has the session's address."""

    def __init__(self, call: Call) -> None:
        self._manager, self._session = call.receiver, call.arguments["session_id"]

    def end(self, result: Any) -> None:
        carrier = inject()
        if carrier:
            gateway = self._manager._get_gateway(self._session)[0]  # noqa: SLF001 - it has no other
            gateway.__ray_call__.remote(_remember_session, self._session, carrier)


def _remember_session(gateway: Any, session_id: str, carrier: dict[str, str]) -> None:
    _sessions[session_id] = carrier
    forget_oldest(_sessions, _MAX_SESSIONS)


# --- the gateway's process


def _start_gateway(call: Call, result: Any) -> None:
    """Switch tracing on, by the configuration of verl's client."""
    config.start_from(call.arguments["backend"].config.actor_rollout_ref.rollout.trace)


class _Turn(Observer):
    """`GatewaySession.run_generation`: a turn, with its messages."""

    opens_span = True

    def __init__(self, call: Call, carrier: dict[str, str]) -> None:
        given = call.arguments
        # The request's name has changed.
        self._request = next(value for name, value in given.items() if name not in ("self", "backend"))
        self._carrier = carrier
        self._place: AbstractContextManager[None] | None = None

    def enter(self) -> None:
        """Enter the trajectory."""
        self._place = extract(self._carrier)
        self._place.__enter__()

    def leave(self) -> None:
        if self._place is not None:
            self._place.__exit__(None, None, None)
            self._place = None

    def started(self) -> None:
        span, pipeline = get_current_span(), runtime.pipeline
        if pipeline is not None and isinstance(span, RolloutSpan) and span.is_recording():
            pipeline.tracer.set_input(span, take_snapshot(self._request))
            model = self._request.get("model")
            if isinstance(model, str):
                span.set_attribute(semconv.REQUEST_MODEL, model)

    def end(self, result: Any) -> None:
        """Record the answer as a chat completion, as the gateway sends it."""
        span, pipeline = get_current_span(), runtime.pipeline
        if pipeline is None or not (isinstance(span, RolloutSpan) and span.is_recording()):
            return
        usage = {"prompt_tokens": result.prompt_tokens, "completion_tokens": result.completion_tokens}
        choice = {"message": result.assistant_msg, "finish_reason": result.finish_reason}
        span.output = take_snapshot({"choices": [choice], "usage": usage})
        span.set_attribute(semconv.USAGE_INPUT_TOKENS, result.prompt_tokens)
        span.set_attribute(semconv.USAGE_OUTPUT_TOKENS, result.completion_tokens)
        span.set_attribute(semconv.FINISH_REASONS, [str(result.finish_reason)])


def _observe_turn(call: Call) -> Observer | None:
    carrier = _sessions.get(call.receiver.handle.session_id)
    if carrier is None:
        warn_once("uni_agent session", "uni-agent: turns are not traced: the gateway doesn't know their trajectory")
        return None
    return _Turn(call, carrier)


def _forget_session(call: Call, result: Any) -> None:
    _sessions.pop(call.receiver.handle.session_id, None)
    if runtime.pipeline is not None:
        runtime.pipeline.request_flush()


# --- the trainer's process


def _note_manager(call: Call, result: Any) -> None:
    """Have advantages and fates sent to the framework's worker, which remembers the trajectories."""
    if call.arguments["config"].actor_rollout_ref.rollout.trace.get("backend"):
        late_rewards.managers.add(result)


_FRAMEWORK: Final = "uni_agent.framework.framework"
_CLASS: Final = "OpenAICompatibleAgentFramework"
_SESSION: Final = "uni_agent.gateway.session.session"
_TURNS: Final = "turns are not traced"

HOOKS: Final = (
    Hook(
        _FRAMEWORK,
        f"{_CLASS}.__init__",
        "nothing is traced",
        after(_start_framework),
        needs=("rollout_config",),
        while_off=True,
    ),
    Hook(
        _FRAMEWORK,
        f"{_CLASS}.generate_sequences",
        "rollout.sample_index is the uid",
        _observe_batch,
        needs=("prompts",),
    ),
    Hook(
        _FRAMEWORK,
        f"{_CLASS}._run_session",
        "trajectories are not traced",
        _Session,
        needs=("sample_fields", "session_index"),
    ),
    Hook("uni_agent.gateway.manager", "GatewayManager.create_session", _TURNS, _Creation, needs=("session_id",)),
    Hook(
        "uni_agent.gateway.gateway",
        "_GatewayActor.__init__",
        _TURNS,
        after(_start_gateway),
        needs=("backend",),
        while_off=True,
    ),
    Hook(_SESSION, "GatewaySession.run_generation", _TURNS, _observe_turn, needs=("backend",), kind="LLM"),
    Hook(_SESSION, "GatewaySession.finalize", "the last turns may come late", after(_forget_session)),
    Hook(
        "uni_agent.framework.entry",
        "AgentFrameworkRolloutAdapter.create",
        "advantages and fates are not recorded",
        after(_note_manager),
        needs=("config",),
        while_off=True,
    ),
)
