"""Every attribute key that otel-rollout writes, with its type and who reads it.

Keys of our own start with `rollout.`. Where OpenTelemetry's GenAI conventions or OpenInference have a name, theirs is
used. No key is a dotted prefix of another, because Phoenix and Weave turn dots into nested objects.

Sources: OpenTelemetry semantic conventions for generative AI
(https://github.com/open-telemetry/semantic-conventions-genai) and OpenInference
(https://github.com/Arize-ai/openinference/tree/main/spec).
"""

from __future__ import annotations

from functools import partial
from typing import Final, Literal, NamedTuple, get_args

__all__ = ["ANNOTATIONS", "ATTRIBUTES", "SPAN_KINDS", "TAGS", "Attribute", "SpanKind"]


class Attribute(NamedTuple):
    """One attribute: its spans, its type, its meaning and its readers."""

    key: str
    where: str
    type: str
    meaning: str
    readers: str


_attributes: list[Attribute] = []


def _key(where: str, key: str, type: str, meaning: str, readers: str) -> str:  # noqa: A002 - a column
    """Add an attribute to the table of docs/reference/attributes.md, and return its key."""
    _attributes.append(Attribute(key, where, type, meaning, readers))
    return key


_late = partial(_key, "root; late, a span below it")
_resource = partial(_key, "resource")
_tag = partial(_key, "root and children")
_root = partial(_key, "root")
_any = partial(_key, "all")
_llm = partial(_key, "LLM ops")
_chat = partial(_key, "root and LLM ops with messages")
_turn = partial(_key, "turns (verl)")
_tool = partial(_key, "tool calls (verl)")
_generation = partial(_key, "generation.* events (verl)")
_exception = partial(_key, "exception event")
_evaluation = partial(_key, "gen_ai.evaluation.result event (otlp)")
_tool_op = partial(_key, "TOOL ops")
_tool_call = partial(_key, "TOOL ops (otlp, an application's provider)")
_verl = partial(_key, "root (verl)")
_verl_turn = partial(_key, "root and turns (verl)")

# --- resource
SERVICE_NAME: Final = _resource("service.name", "str", "`OTEL_SERVICE_NAME`, else the project name", "all")
SERVICE_INSTANCE_ID: Final = _resource("service.instance.id", "str", "one id per process", "all")
HOST_NAME: Final = _resource("host.name", "str", "the host of the process", "`host` in the catalog")
PROJECT_NAME: Final = _resource("rollout.project_name", "str", "`init`'s project", "MLflow and Weave exporters")
RUN_ID: Final = _resource("rollout.run_id", "str", "the run: `OTEL_ROLLOUT_RUN_ID`, else one id per process", "filters")
OPENINFERENCE_PROJECT: Final = _resource("openinference.project.name", "str", "the project in Phoenix", "Phoenix")

# --- tags, on the root and on every span inside it
STEP: Final = _tag("rollout.step", "int", "training step", "filters in every backend")
SAMPLE_INDEX: Final = _tag("rollout.sample_index", "int or str", "the prompt's index in the dataset", "filters")
ROLLOUT_N: Final = _tag("rollout.rollout_n", "int", "the rollout's number in its group", "filters")
VALIDATE: Final = _tag("rollout.validate", "bool", "true in a validation pass", "filters")
EXPERIMENT_NAME: Final = _tag("rollout.experiment_name", "str", "`init`'s experiment", "filters")

# --- outcome of a trajectory
STATUS: Final = _key(
    "root; a cancelled span", "rollout.status", "str", "completed, error, cancelled or truncated", "filters"
)
REWARD: Final = _key(
    "root; late, the span that computed it",
    "rollout.reward",
    "double",
    "the reward from `annotate`",
    "filters, MLflow and Weave feedback",
)
REWARD_PARTS: Final = _key(
    "root; late, the span that computed it",
    "rollout.reward_parts",
    "str (JSON)",
    "the named parts of the reward; in verl, the other results of the reward function",
    "as the reward",
)
ADVANTAGE: Final = _late("rollout.advantage", "double", "the advantage in training", "as the reward")
FATE: Final = _late(
    "rollout.fate",
    "str",
    "what training did with the trajectory: trained, stale, filtered, failed or surplus",
    "as the reward",
)
FATE_REASON: Final = _late("rollout.fate_reason", "str", "the reason of the fate", "as the explanation of the fate")
LOG_PROB_GAP: Final = _late(
    "rollout.log_prob_gap", "double", "the mean distance of the trainer's log-probs from the engine's", "filters"
)
LOG_PROB_GAP_MAX: Final = _late("rollout.log_prob_gap_max", "double", "the largest such distance", "filters")
ENTROPY: Final = _late("rollout.entropy", "double", "the mean entropy of its tokens, by the trainer", "filters")
IMPORTANCE_WEIGHT: Final = _late(
    "rollout.importance_weight", "double", "the mean importance weight of its tokens in training", "filters"
)
STALENESS: Final = _late(
    "rollout.staleness",
    "int",
    "the steps from the newest weights to the trainer's; verl: step - 1 - newest",
    "filters",
)
LATE: Final = _key(
    "the span of a late annotation", "rollout.late", "bool", "true: it has facts of the trajectory, no time", "you"
)
TURNS: Final = _root(
    "rollout.turns", "int", "LLM ops of the trajectory, except nested ones and a simulated user's", "filters"
)
INPUT_TOKENS: Final = _root("rollout.input_tokens", "int", "sum of these LLM ops' input tokens", "filters")
OUTPUT_TOKENS: Final = _root("rollout.output_tokens", "int", "sum of these LLM ops' output tokens", "filters")
DROPPED_SPANS: Final = _root("rollout.dropped_spans", "int", "spans of the trajectory dropped before its end", "you")
TRUNCATED_BYTES: Final = _root("rollout.truncated_bytes", "int", "payload bytes cut from the trajectory", "you")
REDACTED: Final = _root("rollout.redacted", "int", "secrets replaced in the trajectory", "you")
TURN: Final = _llm("rollout.turn", "int", "the turn's number in its trajectory, from 1", "filters")
OUTSIDE_TRAJECTORY: Final = _key("an op outside any trajectory", "rollout.outside_trajectory", "bool", "true", "you")

# --- shared conventions
SESSION_ID: Final = _root("session.id", "str", "the group: all rollouts of one prompt", "Phoenix, MLflow, Langfuse")
CONVERSATION_ID: Final = _root("gen_ai.conversation.id", "str", "the trajectory: its trace id", "Weave threads")
AGENT_NAME: Final = _key(
    "root, sub-agents", "gen_ai.agent.name", "str", "the root's name; of a sub-agent its own", "Logfire, Datadog"
)
ROLE: Final = _key(
    "LLM ops, sub-agents",
    "rollout.role",
    "str",
    "the side that it speaks for, if it is marked: policy, or user for a simulated user",
    "you",
)
COMPACTED: Final = _llm(
    "gen_ai.conversation.compacted", "bool", "true if the messages replace a history that was too long", "you"
)
TRAINED: Final = _key(
    "root, sub-agents", "rollout.trained", "bool", "true if the conversations inside are training data", "filters"
)
METADATA: Final = _root("metadata", "str (JSON)", "the tags and annotations once more", "Phoenix filters")
SPAN_KIND: Final = _any(
    "openinference.span.kind", "str", "AGENT, CHAIN, EVALUATOR, LLM or TOOL", "Phoenix, MLflow, Weave, Langfuse"
)
OPERATION_NAME: Final = _key(
    "root, LLM and TOOL ops", "gen_ai.operation.name", "str", "invoke_agent, chat or execute_tool", "Logfire, MLflow"
)
INPUT_VALUE: Final = _any(
    "input.value", "str (JSON or text)", "the arguments; on the root, the prompt", "Phoenix, MLflow, Weave, Langfuse"
)
INPUT_MIME_TYPE: Final = _any("input.mime_type", "str", "application/json; text/plain for a text", "Phoenix")
OUTPUT_VALUE: Final = _any(
    "output.value", "str (JSON or text)", "the result; on the root, the answer", "Phoenix, MLflow, Weave, Langfuse"
)
OUTPUT_MIME_TYPE: Final = _any("output.mime_type", "str", "application/json; text/plain for a text", "Phoenix")
INPUT_MESSAGES: Final = _chat(
    "gen_ai.input.messages",
    "str (JSON)",
    "the messages that the model got; on the root, the conversation before the last answer",
    "Phoenix, MLflow, Weave",
)
OUTPUT_MESSAGES: Final = _chat(
    "gen_ai.output.messages", "str (JSON)", "the model's answer; on the root, the last one", "Phoenix, MLflow, Weave"
)
TOOL_DEFINITIONS: Final = _chat(
    "gen_ai.tool.definitions", "str (JSON)", "the tools that the model may call", "Phoenix, MLflow"
)
ERROR_TYPE: Final = _key("a span that failed", "error.type", "str", "the exception's class", "all")
PROVIDER_NAME: Final = _llm("gen_ai.provider.name", "str", "argument `provider`, else the client library", "Logfire")
REQUEST_MODEL: Final = _llm(
    "gen_ai.request.model",
    "str",
    "the requested model, if an argument names it; the path of verl's",
    "MLflow, Weave, Logfire",
)
RESPONSE_MODEL: Final = _llm(
    "gen_ai.response.model", "str", "the model of the result, if it has one", "MLflow, Weave, Logfire"
)
USAGE_INPUT_TOKENS: Final = _llm(
    "gen_ai.usage.input_tokens", "int", "prompt tokens, if known", "MLflow, Weave, Phoenix"
)
USAGE_OUTPUT_TOKENS: Final = _llm(
    "gen_ai.usage.output_tokens", "int", "generated tokens, if known", "MLflow, Weave, Phoenix"
)
USAGE_CACHED_TOKENS: Final = _llm(
    "gen_ai.usage.cache_read.input_tokens",
    "int",
    "prompt tokens read from a cache, if known; part of the input tokens",
    "MLflow, Logfire",
)
USAGE_CACHE_WRITE_TOKENS: Final = _llm(
    "gen_ai.usage.cache_write.input_tokens",
    "int",
    "prompt tokens written to a cache, if known; part of the input tokens",
    "MLflow, Logfire",
)
SERVER_ADDRESS: Final = _llm(
    "server.address", "str", "the engine's host, if an instrumentation sets it", "`engine` in the catalog"
)
SERVER_PORT: Final = _llm("server.port", "int", "the engine's port, if an instrumentation sets it", "as the host")
FINISH_REASONS: Final = _llm("gen_ai.response.finish_reasons", "list of str", "the finish reason, if known", "Logfire")
TOOL_NAME: Final = _tool_op("gen_ai.tool.name", "str", "the tool's name", "Logfire, Phoenix")
TOOL_TYPE: Final = _tool_op("gen_ai.tool.type", "str", "`function`: the agent runs it itself", "Logfire")
TOOL_CALL_ID: Final = _key("TOOL ops (verl)", "gen_ai.tool.call.id", "str", "the model's id of the call", "Logfire")

TOOL_CALL_ARGUMENTS: Final = _tool_call(
    "gen_ai.tool.call.arguments",
    "str (JSON or text)",
    "`input.value` again, at most 64 KiB of it",
    "OTLP backends that only read GenAI's names",
)
TOOL_CALL_RESULT: Final = _tool_call(
    "gen_ai.tool.call.result",
    "str (JSON or text)",
    "`output.value` again, at most 64 KiB of it",
    "OTLP backends that only read GenAI's names",
)

# --- annotations by verl's plugin
UID: Final = _verl("rollout.uid", "str", "verl's id of the prompt in this step", "filters")
DATASET_INDEX: Final = _verl("rollout.dataset_index", "int or str", "`extra_info.index` of the dataset", "filters")
SAMPLE_INDEX_FROM: Final = _verl("rollout.sample_index_from", "str", "index, uid, or row of the worker", "you")
ROLLOUT_N_FROM: Final = _verl("rollout.rollout_n_from", "str", "session_id, batch or worker", "you")
DATA_SOURCE: Final = _verl("rollout.data_source", "str", "the dataset's `data_source`", "filters")
FINISH_REASON: Final = _verl("rollout.finish_reason", "str", "length if cut, else the engine's reason", "filters")
NUM_TURNS: Final = _verl("rollout.num_turns", "int", "turns of the chat, as verl counts them", "filters")
NUM_OUTPUTS: Final = _verl("rollout.num_outputs", "int", "sequences of the agent loop, if more than one", "you")
PROMPT_LENGTH: Final = _verl("rollout.prompt_length", "int", "tokens of the prompt", "filters")
RESPONSE_LENGTH: Final = _verl(
    "rollout.response_length", "int", "tokens of the response, with tools' results", "filters"
)
MODEL_TOKENS: Final = _verl("rollout.model_tokens", "int", "tokens of the response from the model", "filters")
CACHED_TOKENS: Final = _verl("rollout.cached_tokens", "int", "cached prompt tokens of all turns", "filters")
TOOL_CALLS: Final = _verl("rollout.tool_calls", "int", "tool calls", "filters")
TOOL_ERRORS: Final = _verl("rollout.tool_errors", "int", "failed tool calls", "filters")
TURN_SCORES: Final = _verl("rollout.turn_scores", "list of double", "the agent loop's scores", "you")
TOOL_REWARDS: Final = _verl("rollout.tool_rewards", "list of double", "the agent loop's tool rewards", "you")
GENERATE_SECONDS: Final = _verl("rollout.generate_seconds", "double", "verl's metric generate_sequences", "filters")
TOOL_SECONDS: Final = _verl("rollout.tool_seconds", "double", "verl's metric tool_calls", "filters")
SCORE_SECONDS: Final = _verl("rollout.score_seconds", "double", "verl's metric compute_score", "filters")
PREEMPTIONS: Final = _verl_turn("rollout.preemptions", "int", "preemptions of the request by the engine", "filters")
MIN_WEIGHTS_VERSION: Final = _verl_turn("rollout.min_weights_version", "int", "the oldest weights used", "filters")
MAX_WEIGHTS_VERSION: Final = _verl_turn("rollout.max_weights_version", "int", "the newest weights used", "filters")

# --- turns and tool calls of verl
REQUEST_ID: Final = _turn("rollout.request_id", "str", "verl's id of the conversation", "you")
ENGINE_REQUEST_ID: Final = _turn("rollout.engine_request_id", "str", "the engine's id of the turn", "vLLM's own spans")
SERVER: Final = _turn("rollout.server", "str", "the server that the load balancer chose", "filters")
PREFIX_BROKEN: Final = _turn("rollout.prefix_broken", "bool", "the prompt does not extend the turn before", "filters")
TOOL_REWARD: Final = _tool("rollout.tool_reward", "double", "the tool's reward", "filters")
TOOL_RESPONSE_TRUNCATED: Final = _tool(
    "rollout.tool_response_truncated", "bool", "true if verl cuts the response", "filters"
)
REQUESTED_TOOL: Final = _tool("rollout.requested_tool", "str", "a requested name that no tool has", "you")

# --- events of a turn of verl that was aborted and resumed
WEIGHTS_VERSION: Final = _generation("rollout.weights_version", "int", "the weights of this attempt", "you")
NEW_TOKENS: Final = _generation("rollout.new_tokens", "int", "its new tokens", "you")
STOP_REASON: Final = _generation("rollout.stop_reason", "str", "its stop reason", "you")

# --- the exception event (https://opentelemetry.io/docs/specs/semconv/exceptions/exceptions-spans/)
EXCEPTION_TYPE: Final = _exception("exception.type", "str", "the exception's class", "all")
EXCEPTION_MESSAGE: Final = _exception("exception.message", "str", "its message", "all")
EXCEPTION_STACKTRACE: Final = _exception("exception.stacktrace", "str", "its traceback", "all")
EXCEPTION_ESCAPED: Final = _exception("exception.escaped", "str", "True if it left the span, as in the SDK", "nobody")

# --- the evaluation event (https://github.com/open-telemetry/semantic-conventions-genai, gen-ai-events)
EVALUATION_NAME: Final = _evaluation("gen_ai.evaluation.name", "str", "`reward`, or the part's name", "OTLP backends")
EVALUATION_ID: Final = _evaluation(
    "rollout.evaluation_id", "str", "one for each trajectory and name: the latest event with it counts", "you"
)
EVALUATION_VALUE: Final = _evaluation(
    "gen_ai.evaluation.score.value", "double", "a number; of a boolean 1 or 0", "OTLP backends"
)
EVALUATION_LABEL: Final = _evaluation(
    "gen_ai.evaluation.score.label", "str", "a text, or `true` or `false`", "OTLP backends"
)
EVALUATION_EXPLANATION: Final = _evaluation(
    "gen_ai.evaluation.explanation", "str", "the part's explanation, if it has one", "OTLP backends"
)

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
"""The version of OpenTelemetry's semantic conventions that the spans' scope names: the newest `Schemas` of
opentelemetry-semantic-conventions 0.66b2. The GenAI conventions, now in a repository of their own, have none yet."""
EXCEPTION_EVENT: Final = "exception"
EVALUATION_EVENT: Final = "gen_ai.evaluation.result"
FUNCTION_TOOL: Final = "function"
"""The value of `gen_ai.tool.type`."""
JSON_MIME_TYPE: Final = "application/json"
TEXT_MIME_TYPE: Final = "text/plain"

ATTRIBUTES: Final = tuple(_attributes)
ANNOTATIONS: Final = tuple(
    row for row in ATTRIBUTES if row.where in ("root (verl)", "root and turns (verl)", "root; late, a span below it")
)
"""Attributes that `annotate` sets on the root if the caller has them, as verl's plugin does."""

MEASURES: Final = (FATE_REASON, LOG_PROB_GAP, LOG_PROB_GAP_MAX, ENTROPY, IMPORTANCE_WEIGHT, STALENESS)
"""The facts of training besides advantage and fate."""

TAGS: Final = (STEP, SAMPLE_INDEX, ROLLOUT_N, VALIDATE, EXPERIMENT_NAME)
"""The five tags, in verl's order."""

STATUSES: Final = ("completed", "error", "cancelled", "truncated")
"""The values of `rollout.status`."""

FATES: Final = ("trained", "stale", "filtered", "failed", "surplus")
"""The values of `rollout.fate`."""

OPERATION_NAMES: Final = {"AGENT": "invoke_agent", "LLM": "chat", "TOOL": "execute_tool"}
"""The GenAI operation of a span kind, if there is one."""

SpanKind = Literal["AGENT", "CHAIN", "EVALUATOR", "LLM", "TOOL"]
SPAN_KINDS: Final[tuple[SpanKind, ...]] = get_args(SpanKind)
"""The OpenInference span kinds that `rollout_trace_op` takes."""
Role = Literal["policy", "user"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
"""The values of `rollout.role`."""
USER: Final = "user"
SCOPES: Final = ("AGENT", "EVALUATOR", "TOOL")
"""The kinds whose spans, below a root, have conversations of their own inside."""
