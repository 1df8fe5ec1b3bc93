"""Every attribute key that otel-rollout writes, with its type and who reads it.

Keys of our own start with `rollout.`. Where OpenTelemetry's GenAI conventions or OpenInference have a name, theirs is
used. No key is a dotted prefix of another, because Phoenix and Weave turn dots into nested objects.

Sources: OpenTelemetry semantic conventions for generative AI
(https://github.com/open-telemetry/semantic-conventions-genai) and OpenInference
(https://github.com/Arize-ai/openinference/tree/main/spec).
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["ANNOTATIONS", "ATTRIBUTES", "SPAN_KINDS", "TAGS", "Attribute"]


class Attribute(NamedTuple):
    """One attribute: its spans, its type, its meaning and its readers."""

    key: str
    where: str
    type: str
    meaning: str
    readers: str


_attributes: list[Attribute] = []
_annotations: list[Attribute] = []


def _key(key: str, where: str, type: str, meaning: str, readers: str) -> str:  # noqa: A002 - a column
    """Add an attribute to the table of docs/attributes.md, and return its key."""
    _attributes.append(Attribute(key, where, type, meaning, readers))
    return key


def _root(key: str, type: str, meaning: str, readers: str, where: str = "root (verl)") -> str:  # noqa: A002 - a column
    """Add an attribute of the root that `annotate` takes."""
    _annotations.append(Attribute(key, where, type, meaning, readers))
    return _key(key, where, type, meaning, readers)


# --- resource
SERVICE_NAME: Final = _key("service.name", "resource", "str", "`OTEL_SERVICE_NAME`, else the project name", "all")
SERVICE_INSTANCE_ID: Final = _key("service.instance.id", "resource", "str", "one id per process", "all")
PROJECT_NAME: Final = _key(
    "rollout.project_name", "resource", "str", "the project given to `init`", "MLflow and Weave exporters"
)
RUN_ID: Final = _key(
    "rollout.run_id", "resource", "str", "the run: `OTEL_ROLLOUT_RUN_ID`, else one id per process", "filters"
)
OPENINFERENCE_PROJECT: Final = _key(
    "openinference.project.name", "resource", "str", "the project that Phoenix files the trace under", "Phoenix"
)

# --- tags, on the root and on every span inside it
STEP: Final = _key("rollout.step", "root and children", "int", "training step", "filters in every backend")
SAMPLE_INDEX: Final = _key(
    "rollout.sample_index", "root and children", "int or str", "the prompt's index in the dataset", "filters"
)
ROLLOUT_N: Final = _key(
    "rollout.rollout_n", "root and children", "int", "which of the n rollouts of the prompt", "filters"
)
VALIDATE: Final = _key("rollout.validate", "root and children", "bool", "true in a validation pass", "filters")
EXPERIMENT_NAME: Final = _key(
    "rollout.experiment_name", "root and children", "str", "the experiment given to `init`", "filters"
)

# --- outcome of a trajectory
STATUS: Final = _key(
    "rollout.status", "root; a cancelled span", "str", "completed, error, cancelled or truncated", "filters"
)
REWARD: Final = _key(
    "rollout.reward",
    "root; late, the span that computed it",
    "double",
    "the reward given to `annotate`",
    "filters, MLflow and Weave feedback",
)
TURNS: Final = _key("rollout.turns", "root", "int", "LLM ops of the trajectory, without nested ones", "filters")
INPUT_TOKENS: Final = _key("rollout.input_tokens", "root", "int", "sum of the LLM ops' input tokens", "filters")
OUTPUT_TOKENS: Final = _key("rollout.output_tokens", "root", "int", "sum of the LLM ops' output tokens", "filters")
DROPPED_SPANS: Final = _key(
    "rollout.dropped_spans", "root", "int", "spans of this trajectory that were dropped before it ended", "you"
)
TRUNCATED_BYTES: Final = _key(
    "rollout.truncated_bytes", "root", "int", "payload bytes that were cut from this trajectory", "you"
)
OUTSIDE_TRAJECTORY: Final = _key(
    "rollout.outside_trajectory", "an op with no trajectory around it", "bool", "true", "you"
)

# --- shared conventions
SESSION_ID: Final = _key(
    "session.id", "root", "str", "the group: all rollouts of one prompt", "Phoenix, MLflow, Langfuse"
)
CONVERSATION_ID: Final = _key("gen_ai.conversation.id", "root", "str", "the trajectory: its trace id", "Weave threads")
METADATA: Final = _key("metadata", "root", "str (JSON)", "the tags and annotations once more", "Phoenix filters")
SPAN_KIND: Final = _key(
    "openinference.span.kind", "all", "str", "AGENT, CHAIN, EVALUATOR, LLM or TOOL", "Phoenix, MLflow, Weave, Langfuse"
)
OPERATION_NAME: Final = _key(
    "gen_ai.operation.name", "root, LLM and TOOL ops", "str", "invoke_agent, chat or execute_tool", "Logfire, MLflow"
)
INPUT_VALUE: Final = _key(
    "input.value", "all", "str (JSON)", "the arguments; on the root, the prompt", "Phoenix, MLflow, Weave, Langfuse"
)
INPUT_MIME_TYPE: Final = _key("input.mime_type", "all", "str", "application/json", "Phoenix")
OUTPUT_VALUE: Final = _key(
    "output.value", "all", "str (JSON)", "the result; on the root, the answer", "Phoenix, MLflow, Weave, Langfuse"
)
OUTPUT_MIME_TYPE: Final = _key("output.mime_type", "all", "str", "application/json", "Phoenix")
ERROR_TYPE: Final = _key("error.type", "a span that failed", "str", "the exception's class", "all")
PROVIDER_NAME: Final = _key(
    "gen_ai.provider.name",
    "LLM ops",
    "str",
    "an argument `provider`, else the client library of the result or error",
    "Logfire",
)
REQUEST_MODEL: Final = _key(
    "gen_ai.request.model",
    "LLM ops",
    "str",
    "the model that was asked for, if an argument names it",
    "MLflow, Weave, Logfire",
)
RESPONSE_MODEL: Final = _key(
    "gen_ai.response.model",
    "LLM ops",
    "str",
    "the model that answered, if the result names it",
    "MLflow, Weave, Logfire",
)
USAGE_INPUT_TOKENS: Final = _key(
    "gen_ai.usage.input_tokens", "LLM ops", "int", "prompt tokens, if known", "MLflow, Weave, Phoenix"
)
USAGE_OUTPUT_TOKENS: Final = _key(
    "gen_ai.usage.output_tokens", "LLM ops", "int", "generated tokens, if known", "MLflow, Weave, Phoenix"
)
USAGE_CACHED_TOKENS: Final = _key(
    "gen_ai.usage.cache_read.input_tokens",
    "LLM ops (verl)",
    "int",
    "prompt tokens that the engine had cached",
    "Logfire",
)
FINISH_REASONS: Final = _key(
    "gen_ai.response.finish_reasons", "LLM ops", "list of str", "why generation stopped, if known", "Logfire"
)
TOOL_NAME: Final = _key("gen_ai.tool.name", "TOOL ops", "str", "the tool's name", "Logfire, Phoenix")
TOOL_CALL_ID: Final = _key("gen_ai.tool.call.id", "TOOL ops (verl)", "str", "the model's id of the call", "Logfire")

# --- annotations of verl's plugin on the root
UID: Final = _root("rollout.uid", "str", "verl's id of the prompt in this step", "filters")
DATASET_INDEX: Final = _root(
    "rollout.dataset_index", "int or str", "`extra_info.index` of the dataset, as it is", "filters"
)
SAMPLE_INDEX_FROM: Final = _root("rollout.sample_index_from", "str", "index, uid, or row of the worker", "you")
ROLLOUT_N_FROM: Final = _root("rollout.rollout_n_from", "str", "session_id, batch or worker", "you")
DATA_SOURCE: Final = _root("rollout.data_source", "str", "the dataset's `data_source`", "filters")
REWARD_EXTRA_INFO: Final = _root(
    "rollout.reward_extra_info", "str (JSON)", "what the reward function said beside the reward", "you"
)
FINISH_REASON: Final = _root(
    "rollout.finish_reason", "str", "length if it was cut, else what the engine said", "filters"
)
NUM_TURNS: Final = _root("rollout.num_turns", "int", "turns of the chat, as verl counts them", "filters")
NUM_OUTPUTS: Final = _root("rollout.num_outputs", "int", "sequences that the agent loop made, if more than one", "you")
PROMPT_LENGTH: Final = _root("rollout.prompt_length", "int", "tokens of the prompt", "filters")
RESPONSE_LENGTH: Final = _root(
    "rollout.response_length", "int", "tokens of the response, with what tools said", "filters"
)
MODEL_TOKENS: Final = _root("rollout.model_tokens", "int", "tokens of the response that the model made", "filters")
CACHED_TOKENS: Final = _root(
    "rollout.cached_tokens", "int", "prompt tokens that the engine had cached, summed over turns", "filters"
)
TOOL_CALLS: Final = _root("rollout.tool_calls", "int", "how many tool calls there were", "filters")
TOOL_ERRORS: Final = _root("rollout.tool_errors", "int", "how many of them failed", "filters")
TURN_SCORES: Final = _root("rollout.turn_scores", "list of double", "as the agent loop collected them", "you")
TOOL_REWARDS: Final = _root("rollout.tool_rewards", "list of double", "as the agent loop collected them", "you")
GENERATE_SECONDS: Final = _root("rollout.generate_seconds", "double", "verl's metric generate_sequences", "filters")
TOOL_SECONDS: Final = _root("rollout.tool_seconds", "double", "verl's metric tool_calls", "filters")
SCORE_SECONDS: Final = _root("rollout.score_seconds", "double", "verl's metric compute_score", "filters")
STALENESS: Final = _root("rollout.staleness", "int", "step - 1 - newest weights, if the step is known", "filters")
PREEMPTIONS: Final = _root(
    "rollout.preemptions", "int", "how often the engine preempted the request", "filters", where="root and turns (verl)"
)
MIN_WEIGHTS_VERSION: Final = _root(
    "rollout.min_weights_version", "int", "the oldest weights that took part", "filters", where="root and turns (verl)"
)
MAX_WEIGHTS_VERSION: Final = _root(
    "rollout.max_weights_version", "int", "the newest weights that took part", "filters", where="root and turns (verl)"
)

# --- turns and tool calls of verl
REQUEST_ID: Final = _key("rollout.request_id", "turns (verl)", "str", "verl's id of the conversation", "you")
ENGINE_REQUEST_ID: Final = _key(
    "rollout.engine_request_id", "turns (verl)", "str", "the id of this turn in the engine", "vLLM's own spans"
)
SERVER: Final = _key("rollout.server", "turns (verl)", "str", "which server the load balancer picked", "filters")
PREFIX_BROKEN: Final = _key(
    "rollout.prefix_broken", "turns (verl)", "bool", "the prompt does not go on from the turn before", "filters"
)
TOOL_REWARD: Final = _key(
    "rollout.tool_reward", "tool calls (verl)", "double", "the reward that the tool gave", "filters"
)
TOOL_RESPONSE_TRUNCATED: Final = _key(
    "rollout.tool_response_truncated", "tool calls (verl)", "bool", "true if verl cuts the answer", "filters"
)
REQUESTED_TOOL: Final = _key(
    "rollout.requested_tool", "tool calls (verl)", "str", "the name that the model asked for, of no tool", "you"
)

# --- events of a turn of verl that was aborted and resumed
WEIGHTS_VERSION: Final = _key(
    "rollout.weights_version", "generation.* events (verl)", "int", "the weights of this attempt", "you"
)
NEW_TOKENS: Final = _key("rollout.new_tokens", "generation.* events (verl)", "int", "the tokens that it made", "you")
STOP_REASON: Final = _key("rollout.stop_reason", "generation.* events (verl)", "str", "why it stopped", "you")

# --- the exception event (https://opentelemetry.io/docs/specs/semconv/exceptions/exceptions-spans/)
EXCEPTION_TYPE: Final = _key("exception.type", "exception event", "str", "the exception's class", "all")
EXCEPTION_MESSAGE: Final = _key("exception.message", "exception event", "str", "its message", "all")
EXCEPTION_STACKTRACE: Final = _key("exception.stacktrace", "exception event", "str", "its traceback", "all")
EXCEPTION_ESCAPED: Final = _key(
    "exception.escaped", "exception event", "str", "True if it left the span, as the SDK writes it", "nobody"
)

EXCEPTION_EVENT: Final = "exception"
JSON_MIME_TYPE: Final = "application/json"

ATTRIBUTES: Final = tuple(_attributes)
ANNOTATIONS: Final = tuple(_annotations)
"""Attributes that `annotate` sets on the root if the caller knows them, as verl's plugin does."""

TAGS: Final = (STEP, SAMPLE_INDEX, ROLLOUT_N, VALIDATE, EXPERIMENT_NAME)
"""The five tags, in verl's order."""

STATUSES: Final = ("completed", "error", "cancelled", "truncated")
"""The values of `rollout.status`."""

OPERATION_NAMES: Final = {"AGENT": "invoke_agent", "LLM": "chat", "TOOL": "execute_tool"}
"""The GenAI operation of a span kind, if there is one."""

SPAN_KINDS: Final = ("AGENT", "CHAIN", "EVALUATOR", "LLM", "TOOL")
"""The OpenInference span kinds that `rollout_trace_op` takes."""
