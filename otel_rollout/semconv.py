"""Every attribute key that otel-rollout writes, with its type and who reads it.

Keys of our own start with `rollout.`. Where OpenTelemetry's GenAI conventions or OpenInference have a name,
theirs is used. No key is a dotted prefix of another, because Phoenix and Weave turn dots into nested objects.

Sources: OpenTelemetry semantic conventions for generative AI
(https://github.com/open-telemetry/semantic-conventions-genai) and OpenInference
(https://github.com/Arize-ai/openinference/tree/main/spec).
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["ANNOTATIONS", "ATTRIBUTES", "SPAN_KINDS", "TAGS", "Attribute"]

# --- the five tags of a trajectory, on the root and on every span inside it
STEP: Final = "rollout.step"
SAMPLE_INDEX: Final = "rollout.sample_index"
ROLLOUT_N: Final = "rollout.rollout_n"
VALIDATE: Final = "rollout.validate"
EXPERIMENT_NAME: Final = "rollout.experiment_name"

# --- what became of a trajectory, on the root
STATUS: Final = "rollout.status"
REWARD: Final = "rollout.reward"
TURNS: Final = "rollout.turns"
INPUT_TOKENS: Final = "rollout.input_tokens"
OUTPUT_TOKENS: Final = "rollout.output_tokens"
DROPPED_SPANS: Final = "rollout.dropped_spans"
TRUNCATED_BYTES: Final = "rollout.truncated_bytes"
OUTSIDE_TRAJECTORY: Final = "rollout.outside_trajectory"

# --- what verl's plugin knows of a trajectory, on the root
UID: Final = "rollout.uid"
DATASET_INDEX: Final = "rollout.dataset_index"
SAMPLE_INDEX_FROM: Final = "rollout.sample_index_from"
ROLLOUT_N_FROM: Final = "rollout.rollout_n_from"
DATA_SOURCE: Final = "rollout.data_source"
REWARD_EXTRA_INFO: Final = "rollout.reward_extra_info"
FINISH_REASON: Final = "rollout.finish_reason"
NUM_TURNS: Final = "rollout.num_turns"
NUM_OUTPUTS: Final = "rollout.num_outputs"
PROMPT_LENGTH: Final = "rollout.prompt_length"
RESPONSE_LENGTH: Final = "rollout.response_length"
MODEL_TOKENS: Final = "rollout.model_tokens"
CACHED_TOKENS: Final = "rollout.cached_tokens"
TOOL_CALLS: Final = "rollout.tool_calls"
TOOL_ERRORS: Final = "rollout.tool_errors"
TURN_SCORES: Final = "rollout.turn_scores"
TOOL_REWARDS: Final = "rollout.tool_rewards"
GENERATE_SECONDS: Final = "rollout.generate_seconds"
TOOL_SECONDS: Final = "rollout.tool_seconds"
SCORE_SECONDS: Final = "rollout.score_seconds"
STALENESS: Final = "rollout.staleness"

# --- what verl's plugin knows of a turn or a tool call
PREEMPTIONS: Final = "rollout.preemptions"
MIN_WEIGHTS_VERSION: Final = "rollout.min_weights_version"
MAX_WEIGHTS_VERSION: Final = "rollout.max_weights_version"
REQUEST_ID: Final = "rollout.request_id"
ENGINE_REQUEST_ID: Final = "rollout.engine_request_id"
SERVER: Final = "rollout.server"
PREFIX_BROKEN: Final = "rollout.prefix_broken"
TOOL_REWARD: Final = "rollout.tool_reward"
TOOL_RESPONSE_TRUNCATED: Final = "rollout.tool_response_truncated"
REQUESTED_TOOL: Final = "rollout.requested_tool"

# --- the events of a turn of verl that was aborted and went on
WEIGHTS_VERSION: Final = "rollout.weights_version"
NEW_TOKENS: Final = "rollout.new_tokens"
STOP_REASON: Final = "rollout.stop_reason"

# --- resource
SERVICE_NAME: Final = "service.name"
SERVICE_INSTANCE_ID: Final = "service.instance.id"
PROJECT_NAME: Final = "rollout.project_name"
RUN_ID: Final = "rollout.run_id"
OPENINFERENCE_PROJECT: Final = "openinference.project.name"

# --- shared conventions
SESSION_ID: Final = "session.id"
METADATA: Final = "metadata"
SPAN_KIND: Final = "openinference.span.kind"
INPUT_VALUE: Final = "input.value"
INPUT_MIME_TYPE: Final = "input.mime_type"
OUTPUT_VALUE: Final = "output.value"
OUTPUT_MIME_TYPE: Final = "output.mime_type"
ERROR_TYPE: Final = "error.type"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
USAGE_CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"

# --- the exception event (https://opentelemetry.io/docs/specs/semconv/exceptions/exceptions-spans/)
EXCEPTION_EVENT: Final = "exception"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"
EXCEPTION_ESCAPED: Final = "exception.escaped"

JSON_MIME_TYPE: Final = "application/json"

TAGS: Final = (STEP, SAMPLE_INDEX, ROLLOUT_N, VALIDATE, EXPERIMENT_NAME)
"""The five tags, in the order in which verl names them."""

STATUSES: Final = ("completed", "error", "cancelled", "truncated")
"""What `rollout.status` can say of a trajectory."""

OPERATION_NAMES: Final = {"AGENT": "invoke_agent", "LLM": "chat", "TOOL": "execute_tool"}
"""The GenAI operation that a span kind stands for, where there is one."""

SPAN_KINDS: Final = ("AGENT", "CHAIN", "EVALUATOR", "LLM", "TOOL")
"""The OpenInference span kinds that `rollout_trace_op` takes."""


class Attribute(NamedTuple):
    """One attribute: where it stands, its type, what it says and who reads it."""

    key: str
    where: str
    type: str
    meaning: str
    readers: str


ANNOTATIONS: Final[tuple[Attribute, ...]] = (
    Attribute(UID, "root (verl)", "str", "verl's id of the prompt in this step", "filters"),
    Attribute(DATASET_INDEX, "root (verl)", "int or str", "`extra_info.index` of the dataset, as it is", "filters"),
    Attribute(SAMPLE_INDEX_FROM, "root (verl)", "str", "index, uid, or row of the worker", "you"),
    Attribute(ROLLOUT_N_FROM, "root (verl)", "str", "session_id, batch or worker", "you"),
    Attribute(DATA_SOURCE, "root (verl)", "str", "the dataset's `data_source`", "filters"),
    Attribute(REWARD_EXTRA_INFO, "root (verl)", "str (JSON)", "what the reward function said beside the reward", "you"),
    Attribute(FINISH_REASON, "root (verl)", "str", "length where it was cut, else what the engine said", "filters"),
    Attribute(NUM_TURNS, "root (verl)", "int", "turns of the chat, as verl counts them", "filters"),
    Attribute(NUM_OUTPUTS, "root (verl)", "int", "sequences that the agent loop made, where more than one", "you"),
    Attribute(PROMPT_LENGTH, "root (verl)", "int", "tokens of the prompt", "filters"),
    Attribute(RESPONSE_LENGTH, "root (verl)", "int", "tokens of the response, with what tools said", "filters"),
    Attribute(MODEL_TOKENS, "root (verl)", "int", "tokens of the response that the model made", "filters"),
    Attribute(
        CACHED_TOKENS, "root (verl)", "int", "prompt tokens that the engine had cached, summed over turns", "filters"
    ),
    Attribute(TOOL_CALLS, "root (verl)", "int", "how many tool calls there were", "filters"),
    Attribute(TOOL_ERRORS, "root (verl)", "int", "how many of them failed", "filters"),
    Attribute(TURN_SCORES, "root (verl)", "list of double", "as the agent loop collected them", "you"),
    Attribute(TOOL_REWARDS, "root (verl)", "list of double", "as the agent loop collected them", "you"),
    Attribute(GENERATE_SECONDS, "root (verl)", "double", "verl's metric generate_sequences", "filters"),
    Attribute(TOOL_SECONDS, "root (verl)", "double", "verl's metric tool_calls", "filters"),
    Attribute(SCORE_SECONDS, "root (verl)", "double", "verl's metric compute_score", "filters"),
    Attribute(STALENESS, "root (verl)", "int", "step - 1 - newest weights, where the step is known", "filters"),
    Attribute(PREEMPTIONS, "root and turns (verl)", "int", "how often the engine preempted the request", "filters"),
    Attribute(MIN_WEIGHTS_VERSION, "root and turns (verl)", "int", "the oldest weights that took part", "filters"),
    Attribute(MAX_WEIGHTS_VERSION, "root and turns (verl)", "int", "the newest weights that took part", "filters"),
)
"""What `annotate` puts on the root where somebody knows it, as verl's plugin does; anybody else may, too."""


ATTRIBUTES: Final[tuple[Attribute, ...]] = (
    Attribute(SERVICE_NAME, "resource", "str", "`OTEL_SERVICE_NAME`, else the project name", "all"),
    Attribute(SERVICE_INSTANCE_ID, "resource", "str", "one id per process", "all"),
    Attribute(PROJECT_NAME, "resource", "str", "the project given to `init`", "MLflow and Weave exporters"),
    Attribute(RUN_ID, "resource", "str", "the run: `OTEL_ROLLOUT_RUN_ID`, else one id per process", "filters"),
    Attribute(OPENINFERENCE_PROJECT, "resource", "str", "the project that Phoenix files the trace under", "Phoenix"),
    Attribute(STEP, "root and children", "int", "training step", "filters in every backend"),
    Attribute(SAMPLE_INDEX, "root and children", "int or str", "the prompt's index in the dataset", "filters"),
    Attribute(ROLLOUT_N, "root and children", "int", "which of the n rollouts of the prompt", "filters"),
    Attribute(VALIDATE, "root and children", "bool", "true in a validation pass", "filters"),
    Attribute(EXPERIMENT_NAME, "root and children", "str", "the experiment given to `init`", "filters"),
    Attribute(STATUS, "root; a cancelled span", "str", "completed, error, cancelled or truncated", "filters"),
    Attribute(
        REWARD,
        "root; late, the span that computed it",
        "double",
        "the reward given to `annotate`",
        "filters, MLflow and Weave feedback",
    ),
    Attribute(TURNS, "root", "int", "how many LLM ops the trajectory had, without those inside another", "filters"),
    Attribute(INPUT_TOKENS, "root", "int", "sum of the LLM ops' input tokens", "filters"),
    Attribute(OUTPUT_TOKENS, "root", "int", "sum of the LLM ops' output tokens", "filters"),
    Attribute(DROPPED_SPANS, "root", "int", "spans of this trajectory that were lost before it ended", "you"),
    Attribute(TRUNCATED_BYTES, "root", "int", "payload bytes that were cut from this trajectory", "you"),
    Attribute(OUTSIDE_TRAJECTORY, "an op with no trajectory around it", "bool", "true", "you"),
    Attribute(SESSION_ID, "root", "str", "the group: all rollouts of one prompt", "Phoenix, MLflow, Langfuse"),
    Attribute(CONVERSATION_ID, "root", "str", "the trajectory: its trace id", "Weave threads"),
    Attribute(METADATA, "root", "str (JSON)", "the tags and annotations once more", "Phoenix filters"),
    Attribute(SPAN_KIND, "all", "str", "AGENT, CHAIN, EVALUATOR, LLM or TOOL", "Phoenix, MLflow, Weave, Langfuse"),
    Attribute(OPERATION_NAME, "root, LLM and TOOL ops", "str", "invoke_agent, chat or execute_tool", "Logfire, MLflow"),
    Attribute(
        INPUT_VALUE, "all", "str (JSON)", "the arguments; on the root, the prompt", "Phoenix, MLflow, Weave, Langfuse"
    ),
    Attribute(INPUT_MIME_TYPE, "all", "str", "application/json", "Phoenix"),
    Attribute(
        OUTPUT_VALUE, "all", "str (JSON)", "the result; on the root, the answer", "Phoenix, MLflow, Weave, Langfuse"
    ),
    Attribute(OUTPUT_MIME_TYPE, "all", "str", "application/json", "Phoenix"),
    Attribute(ERROR_TYPE, "a span that failed", "str", "the exception's class", "all"),
    Attribute(
        PROVIDER_NAME,
        "LLM ops",
        "str",
        "an argument `provider`, else the client library whose class the result or the error is of",
        "Logfire",
    ),
    Attribute(
        REQUEST_MODEL,
        "LLM ops",
        "str",
        "the model that was asked for, if an argument names it",
        "MLflow, Weave, Logfire",
    ),
    Attribute(
        RESPONSE_MODEL, "LLM ops", "str", "the model that answered, if the result names it", "MLflow, Weave, Logfire"
    ),
    Attribute(USAGE_INPUT_TOKENS, "LLM ops", "int", "prompt tokens, where known", "MLflow, Weave, Phoenix"),
    Attribute(USAGE_OUTPUT_TOKENS, "LLM ops", "int", "generated tokens, where known", "MLflow, Weave, Phoenix"),
    Attribute(USAGE_CACHED_TOKENS, "LLM ops (verl)", "int", "prompt tokens that the engine had cached", "Logfire"),
    Attribute(FINISH_REASONS, "LLM ops", "list of str", "why generation stopped, where known", "Logfire"),
    Attribute(TOOL_NAME, "TOOL ops", "str", "the tool's name", "Logfire, Phoenix"),
    Attribute(TOOL_CALL_ID, "TOOL ops (verl)", "str", "the model's id of the call", "Logfire"),
    *ANNOTATIONS,
    Attribute(REQUEST_ID, "turns (verl)", "str", "verl's id of the conversation", "you"),
    Attribute(ENGINE_REQUEST_ID, "turns (verl)", "str", "the id of this turn in the engine", "vLLM's own spans"),
    Attribute(SERVER, "turns (verl)", "str", "which server the load balancer picked", "filters"),
    Attribute(PREFIX_BROKEN, "turns (verl)", "bool", "the prompt does not go on from the turn before", "filters"),
    Attribute(TOOL_REWARD, "tool calls (verl)", "double", "the reward that the tool gave", "filters"),
    Attribute(TOOL_RESPONSE_TRUNCATED, "tool calls (verl)", "bool", "true where verl cuts the answer", "filters"),
    Attribute(REQUESTED_TOOL, "tool calls (verl)", "str", "the name that the model asked for, of no tool", "you"),
    Attribute(WEIGHTS_VERSION, "generation.* events (verl)", "int", "the weights of this attempt", "you"),
    Attribute(NEW_TOKENS, "generation.* events (verl)", "int", "the tokens that it made", "you"),
    Attribute(STOP_REASON, "generation.* events (verl)", "str", "why it stopped", "you"),
    Attribute(EXCEPTION_TYPE, "exception event", "str", "the exception's class", "all"),
    Attribute(EXCEPTION_MESSAGE, "exception event", "str", "its message", "all"),
    Attribute(EXCEPTION_STACKTRACE, "exception event", "str", "its traceback", "all"),
    Attribute(EXCEPTION_ESCAPED, "exception event", "str", "True if it left the span, as the SDK writes it", "nobody"),
)
