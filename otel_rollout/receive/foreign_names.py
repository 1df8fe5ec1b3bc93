"""Make trajectories of the spans of RL-Insight and NeMo Gym, by a table of names.

RL-Insight sends each span as a trace of its own; NeMo Gym sends a rollout's spans inside the trace of a run or of an
HTTP request. Their attributes identify the rollout: from these come the trajectory's trace id and its root's id, so
that spans from any process, in any order, meet. A span keeps all its attributes.

Sources: docs/monitor/agent_loop_protocol.md of https://github.com/verl-project/rl-insight, and nemo_gym/telemetry of
https://github.com/NVIDIA-NeMo/Gym.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Status as StatusMessage

from otel_rollout import semconv
from otel_rollout.otlp import EncodedSpan
from otel_rollout.otlp.encoding import fill_attributes
from otel_rollout.otlp.reading import check_span

_GYM: Final = "gym."
_GYM_ROLLOUT: Final = re.compile(r"(\d+)-(\d+)(?:-a\d+)?").fullmatch
_RL_INSIGHT: Final = ("project", "experiment_name", "global_steps", "sample", "session")
_NEMO_GYM: Final = ("nemo.gym.run.id", "nemo.gym.rollout.id")
_STATUSES: Final = {"success": "completed", "capacity_exhausted": "truncated"}
_FAILED: Final = ("failure", "error", "empty")

Values = Mapping[str, Any]
_Given = Callable[[Values], Any]


class _Names(NamedTuple):
    """A row of the table: what spans of one name are.

    Args:
        kind: Their kind.
        identity: Their attributes that identify the rollout; the last one is needed.
        attributes: Our attributes, each with what computes it from theirs.
        is_root: True if the span is the trajectory itself.
    """

    kind: str
    identity: tuple[str, ...]
    attributes: Mapping[str, _Given]
    is_root: bool = False


def _of(name: str) -> _Given:
    return lambda given: given.get(name)


def _number(name: str) -> _Given:
    """Return a number, which RL-Insight writes as a text; another text as it is; None if it is empty."""

    def read(given: Values) -> Any:
        value = given.get(name)
        if isinstance(value, str):
            return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else value or None
        return value

    return read


def _integer(name: str) -> _Given:
    return lambda given: given[name] if type(given.get(name)) is int else None


def _float(name: str) -> _Given:
    return lambda given: float(given[name]) if type(given.get(name)) in (int, float) else None


def _status(given: Values) -> str | None:
    status = given.get("status")
    return "error" if status in _FAILED else _STATUSES.get(str(status))


def _gym_number(group: int) -> _Given:
    def read(given: Values) -> Any:
        rollout = str(given["nemo.gym.rollout.id"])
        found = _GYM_ROLLOUT(rollout)
        # A rollout may have an id of its own choice.
        return int(found[group]) if found else rollout if group == 1 else None

    return read


_RL_TAGS: Final[dict[str, _Given]] = {
    semconv.STEP: _integer("global_steps"),
    semconv.SAMPLE_INDEX: _number("sample"),
    semconv.ROLLOUT_N: _number("session"),
    semconv.EXPERIMENT_NAME: _of("experiment_name"),
}
_GYM_TAGS: Final[dict[str, _Given]] = {
    semconv.SAMPLE_INDEX: _gym_number(1),
    semconv.ROLLOUT_N: _gym_number(2),
    semconv.EXPERIMENT_NAME: _of("nemo.gym.run.id"),
}
_GENERATION: Final[dict[str, _Given]] = {
    semconv.USAGE_INPUT_TOKENS: _integer("prompt_tokens"),
    semconv.USAGE_OUTPUT_TOKENS: _integer("completion_tokens"),
    semconv.FINISH_REASONS: lambda given: [given["finish_reason"]] if given.get("finish_reason") else None,
    semconv.OUTPUT_VALUE: lambda given: given.get("content") or None,
    semconv.OUTPUT_MIME_TYPE: lambda given: _mime_type(given.get("content")),
}

TABLE: Final[Mapping[str, _Names]] = {
    "agent_session": _Names(
        "AGENT",
        _RL_INSIGHT,
        {**_RL_TAGS, semconv.STATUS: _status, semconv.UID: lambda given: given.get("uid") or None},
        is_root=True,
    ),
    "agent_task": _Names("CHAIN", _RL_INSIGHT, {**_RL_TAGS, semconv.REWARD: _float("reward")}),
    "gateway_generation": _Names("LLM", _RL_INSIGHT, {**_RL_TAGS, **_GENERATION}),
    "gym.rollout": _Names("AGENT", _NEMO_GYM, _GYM_TAGS, is_root=True),
    "gym.model.chat_completions": _Names("LLM", _NEMO_GYM, _GYM_TAGS),
    "gym.model.responses": _Names("LLM", _NEMO_GYM, _GYM_TAGS),
    "gym.model.messages": _Names("LLM", _NEMO_GYM, _GYM_TAGS),
    "gym.verify": _Names("EVALUATOR", _NEMO_GYM, _GYM_TAGS),
}
"""By the name of a span; NeMo Gym's other spans are steps."""
_GYM_STEP: Final = _Names("CHAIN", _NEMO_GYM, _GYM_TAGS)


def as_trajectory(span: EncodedSpan) -> EncodedSpan:
    """Return a span of the table as a part of its trajectory; any other span as it is."""
    name = span.readable.name
    names = TABLE.get(name) or (_GYM_STEP if name.startswith(_GYM) else None)
    given = span.readable.attributes or {}
    if names is None or given.get(names.identity[-1]) in (None, "") or semconv.SPAN_KIND in given:
        return span
    identity = json.dumps([str(given.get(each)) for each in names.identity]).encode()
    trace_id, root_id = hashlib.sha256(identity).digest()[:16], hashlib.sha256(b"root" + identity).digest()[:8]
    message = SpanMessage.FromString(span.data)
    message.trace_id = trace_id
    message.parent_span_id = b"" if names.is_root else root_id
    if names.is_root:
        message.span_id = root_id
    if given.get("status") in _FAILED and message.status.code == StatusMessage.STATUS_CODE_UNSET:
        message.status.code = StatusMessage.STATUS_CODE_ERROR
    ours = {key: read(given) for key, read in names.attributes.items() if key not in given}
    fill_attributes(message.attributes, {semconv.SPAN_KIND: names.kind, **ours})
    return check_span(message.SerializeToString(), span.resource, span.scope)


def _mime_type(content: Any) -> str | None:
    if not isinstance(content, str) or not content:
        return None
    return semconv.JSON_MIME_TYPE if content[0] in "[{" else semconv.TEXT_MIME_TYPE
