"""The one table of names and places for messages: the words of client libraries, and of OpenTelemetry's conventions.

The GenAI conventions are in development: a later version than 1.41
(https://github.com/open-telemetry/semantic-conventions/tree/v1.41.0/docs/gen-ai) changes only this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _spelled(text: str) -> tuple[str, ...]:
    """Return each word as Python writes it, and as JSON APIs do."""
    return tuple(dict.fromkeys(each for word in text.split() for each in (word, _camel(word))))


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


def _by_word(table: Mapping[str, str]) -> dict[str, str]:
    return {word: fact for fact, words in table.items() for word in words.split()}


def _by_spelling(table: Mapping[str, str]) -> dict[str, str]:
    return {word: fact for fact, words in table.items() for word in _spelled(words)}


PROMPT_TEXT: Final = "prompt_text"
RESPONSE_TEXT: Final = "response_text"
"""The decoded texts in the payload of a generation of token ids, which are verl's names."""
MESSAGE_ARGUMENTS: Final = _words(
    "messages input_messages conversation history chat_history chat contents prompt prompts input inputs"
)
"""Arguments that hold the conversation if several lists look like one; the first counts."""
PROMPT_ARGUMENTS: Final = _words(
    "prompt input user_prompt question query instruction text message contents inputs prompts text_inputs"
)
"""Arguments of an LLM op whose text is a user's message; the first counts."""
HISTORIES: Final = _words("history chat_history past_messages")
"""Arguments with the messages before the prompt, which is an argument of its own."""
SYSTEM_ARGUMENTS: Final = _spelled("system system_prompt system_instruction instructions preamble")
"""Arguments whose text comes before the messages: Anthropic's, Gemini's, Cohere's and OpenAI's Responses."""
TOOL_ARGUMENTS: Final = _words("tools tool_definitions tool_schemas functions")
AROUND_TEXTS: Final = frozenset({*_words("kwargs args request payload body params"), *MESSAGE_ARGUMENTS})
"""Arguments that may have the prompt's text inside."""

ROLES: Final = _by_word(
    {
        "assistant": "ai aimessagechunk bot chatbot gpt model response tool_call",
        "tool": "function ipython observation tool_response",
        "user": "human request",
    }
)
"""The convention's role for the names of LangChain, Gemini, Cohere, ShareGPT, smolagents and OpenAI's old functions."""
KNOWN_ROLES: Final = frozenset({"assistant", "developer", "system", "tool", "user", *ROLES})
LANGCHAIN_TYPES: Final = frozenset(_words("ai AIMessageChunk chat function human system tool"))
WRAPPERS: Final = ("kwargs", "data")
"""The fields around a message as LangChain serializes one."""
ROLE_PLACES: Final = (("role",), ("author", "role"), ("from",), ("kind",))
"""A message's role; below `author` in harmony's, under `from` in ShareGPT's, under `kind` in Pydantic AI's."""

CONTENTS: Final = _words("content parts blocks value message")
LISTED: Final = frozenset({"parts", "blocks"})
"""Those that are lists of parts."""
TYPE_PLACES: Final = ("type", "block_type", "part_kind")
"""The field with a part's type; LlamaIndex and Pydantic AI have their own."""
REASONING_KEYS: Final = _words("reasoning_content reasoning thinking reasoning_text reasoningText tool_plan")
CALL_KEYS: Final = (*_spelled("tool_calls"), "tool_call_chunks", "tool_call", "function_call")
CALL_IDS: Final = (*_spelled("tool_call_id call_id tool_use_id"), "id")
TOOL_NAMES: Final = (*_spelled("tool_name"), "name", "function", "tool")
SAID_BESIDE: Final = ("refusal", "audio")
"""Fields of a message that become parts, by the type of the part."""

TEXT: Final = "text"
REASONING: Final = "reasoning"
CALL: Final = "tool_call"
RESULT: Final = "tool_call_response"
SERVER_CALL: Final = "server_tool_call"
SERVER_RESULT: Final = "server_tool_call_response"
MEDIA: Final = "media"
CALLS: Final = (CALL, SERVER_CALL)
RESULTS: Final = (RESULT, SERVER_RESULT)
"""The types of parts; a provider runs a server's itself."""

PART_TYPES: Final = _by_word(
    {
        TEXT: "text input_text output_text summary_text text_delta user_prompt",
        REASONING: "redacted_thinking reasoning_text reasoning reasoning_delta signature_delta thinking thinking_delta",
        CALL: "custom custom_tool_call function function_call input_json_delta tool_call tool_call_chunk tool_use",
        SERVER_CALL: "mcp_tool_use server_tool_call server_tool_use",
        RESULT: "custom_tool_call_output function_call_output function_response tool_call_response tool_result "
        "tool_return",
        SERVER_RESULT: "server_tool_call_response",
        MEDIA: "image image_url input_image audio audio_url input_audio video video_url file input_file document "
        "blob uri",
    }
)
"""The convention's type of a part or an item of a message, by the type in the APIs of OpenAI, Anthropic and others."""
ITEM_TYPES: Final = frozenset(
    f"{name}{ending}"
    for name in _words(
        "apply_patch_call code_interpreter_call computer_call custom_tool_call file_search_call function_call "
        "image_generation_call local_shell_call mcp_call shell_call tool_search_call web_search_call"
    )
    for ending in ("", "_output")
) | {*_words("compaction item_reference mcp_approval_request mcp_approval_response mcp_list_tools reasoning")}
"""Items without a role in the conversations of OpenAI's Responses
(https://platform.openai.com/docs/api-reference/responses)."""
TYPE_ENDINGS: Final = {"_tool_result": SERVER_RESULT, "_call_output": RESULT}
"""The type of a part by the end of one that isn't in the table."""
KEYED_PARTS: Final = _by_spelling(
    {
        TEXT: "text",
        REASONING: "reasoning_content",
        CALL: "function_call tool_use",
        RESULT: "function_response tool_result",
        SERVER_CALL: "executable_code",
        SERVER_RESULT: "code_execution_result",
        MEDIA: "inline_data file_data image audio video document",
    }
)
"""The type of a part that has none, by the field that it has: Gemini's and Bedrock's."""
INNER: Final = {
    REASONING: _spelled("reasoning_content reasoning_text delta reasoning"),
    CALL: _spelled("function custom function_call tool_use"),
    RESULT: _spelled("function_response tool_result"),
    MEDIA: (
        *_words("image_url audio_url video_url input_audio input_image image audio video document file source"),
        *_spelled("inline_data file_data"),
    ),
}
"""The fields around the fields of a part, by its type."""
FIELDS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    TEXT: {"content": _words("text content value")},
    REASONING: {"content": _words("thinking text content summary reasoning")},
    CALL: {
        "id": (*_spelled("call_id tool_call_id tool_use_id"), "id"),
        "name": TOOL_NAMES,
        "arguments": _words("arguments args input parameters partial_json action operation tool_kwargs"),
    },
    RESULT: {
        "id": CALL_IDS,
        "response": _words("response result output outputs content"),
        "name": _spelled("tool_name"),
    },
    SERVER_CALL: {"id": ("call_id", "id"), "name": ("name",)},
    SERVER_RESULT: {"id": CALL_IDS},
    MEDIA: {
        "modality": ("modality",),
        "uri": ("url", *_spelled("file_uri"), *_words("uri image_url audio_url video_url file_url")),
        "file_id": _spelled("file_id"),
        "mime_type": _spelled("mime_type media_type format"),
        "content": _words("data file_data content image audio video file document"),
    },
}
"""The convention's fields of a part with the names that they have in other forms; the first that is there counts."""
OPTIONAL: Final = frozenset({(RESULT, "name"), *((MEDIA, name) for name in FIELDS[MEDIA])})
"""The fields without which a part is written."""
MODALITIES: Final = {"document": "file", "image": "", "audio": "", "video": "", "file": ""}
"""The words in the name of a media part that are its modality, or stand for one."""
IMPLIED_TYPES: Final = frozenset({"base64", "url", *PART_TYPES})
"""Words in the `type` of a part's inner object that add nothing to its fields."""

CONTAINERS: Final = _words(
    "choices candidates generations outputs output delta message messages completion completions response responses "
    "result results answer content generated_text data"
)
"""The fields of a result that have the answer inside; the first with one counts."""
ANSWERS: Final = _words(
    f"{RESPONSE_TEXT} text generated_text output_text content completion response answer output result reply message "
    "generation completion_text generated outputText texts predictions"
)
"""The fields of a result whose text is the answer; the first counts."""
NO_ANSWERS: Final = frozenset(
    (*PROMPT_ARGUMENTS, *TOOL_ARGUMENTS, *_words("request logprobs details metadata meta meta_info error"))
)
"""Fields of a result in which no answer is looked for."""
STREAMED: Final = _words("delta content_block item token contentBlockDelta contentBlockStart start part")
"""The fields of a stream's event that have a piece of the answer inside."""
STREAM_TYPES: Final = _by_word(
    {
        TEXT: "response.output_text.delta response.refusal.delta text-delta",
        REASONING: "response.reasoning_text.delta response.reasoning_summary_text.delta reasoning-delta reasoning",
        CALL: "response.function_call_arguments.delta response.custom_tool_call_input.delta tool-input-delta "
        "tool-call-delta",
    }
)
"""The type of a part by the type of an event whose piece is a bare text."""
PIECES: Final = (*_spelled("text_delta args_text_delta"), "delta", "inputTextDelta", "text")
INDEXES: Final = _spelled("index content_block_index output_index tool_call_id item_id id")
"""Fields that identify the part that a piece of a stream belongs to."""

FINISH_REASON_KEYS: Final = (*_spelled("finish_reason stop_reason done_reason completion_reason"), "stop_type")
FINISH_REASONS: Final = _by_word(
    {
        "stop": "completed complete end_turn eos eos_token stop_sequence word",
        "tool_call": "function_call tool-calls tool_calls tool_use",
        "length": "limit max_output_tokens max_tokens",
        "content_filter": "refusal safety",
    }
)
"""The convention's finish reason in a message; others stay as they are."""
FINISH_WORDS: Final = frozenset({*FINISH_REASONS, *FINISH_REASONS.values()})

INPUT_TOKENS: Final = "input"
OUTPUT_TOKENS: Final = "output"
THOUGHT_TOKENS: Final = "thought"
CACHED_TOKENS: Final = "cached"
WRITTEN_TOKENS: Final = "written"
ADDED_CACHED: Final = "added cached"
ADDED_WRITTEN: Final = "added written"
INPUT_IDS: Final = "input ids"
OUTPUT_IDS: Final = "output ids"
USAGE: Final = _by_spelling(
    {
        INPUT_TOKENS: "prompt_tokens input_tokens prompt_token_count input_token_count prompt_eval_count "
        "tokens_evaluated num_prompt_tokens num_input_tokens n_prompt_tokens prompt_n input_length "
        "input_text_token_count total_input_tokens",
        OUTPUT_TOKENS: "completion_tokens output_tokens candidates_token_count output_token_count "
        "response_token_count eval_count tokens_predicted generated_tokens predicted_n num_generated_tokens "
        "num_output_tokens num_completion_tokens completion_token_count n_generated_tokens generation_tokens "
        "generation_token_count total_output_tokens token_count",
        THOUGHT_TOKENS: "thoughts_token_count",
        CACHED_TOKENS: "cached_tokens cached_input_tokens cached_content_token_count num_cached_tokens cache_read "
        "input_tokens_cache_read prompt_cache_hit_tokens",
        WRITTEN_TOKENS: "cache_creation input_tokens_cache_write cache_write_tokens",
        ADDED_CACHED: "cache_read_input_tokens",
        ADDED_WRITTEN: "cache_creation_input_tokens cache_write_input_tokens",
    }
)
"""Counts of tokens by their names in a result."""
SHORT_USAGE: Final = _by_word({INPUT_TOKENS: "input prompt", OUTPUT_TOKENS: "output completion"})
"""Counts of tokens by names that mean others elsewhere."""
USAGES: Final = frozenset(_spelled("usage token_usage tokens tokens_used usage_metadata"))
"""The fields in which they mean counts."""
INCLUSIVE: Final = frozenset(_spelled("prompt_tokens"))
"""Names of input tokens that include the cached ones even if Anthropic's names are there too (LiteLLM)."""
IDS: Final = _by_spelling(
    {
        INPUT_IDS: "prompt_ids prompt_token_ids input_ids input_token_ids",
        OUTPUT_IDS: "response_ids token_ids output_ids output_token_ids completion_ids response_token_ids "
        "completion_token_ids generated_ids",
    }
)
"""Lists of token ids, whose length is a count where no usage is given; the first counts."""
MODEL: Final = "model"
REASON: Final = "reason"
WHY_INCOMPLETE: Final = "why incomplete"
FACTS: Final = {
    **USAGE,
    **IDS,
    **dict.fromkeys(FINISH_REASON_KEYS, REASON),
    **dict.fromkeys(_spelled("model model_name model_version model_id"), MODEL),
    "incomplete_details": WHY_INCOMPLETE,
}
"""The fact that a field of a result has, by its name: one look-up for each field."""
FACTS_OF_USAGE: Final = {**FACTS, **SHORT_USAGE}
USAGE_PLACES: Final = frozenset(
    (
        *_spelled("usage usage_metadata token_usage meta_info response_metadata llm_output metadata total_usage"),
        *_spelled("generation_info prompt_tokens_details input_tokens_details additional_kwargs input_token_details"),
        *_words("details timings metrics meta results tokens tokens_used raw raw_response kwargs delta messageStop"),
        *_words("message messages choices candidates outputs output generations response result completion data"),
    )
)
"""The fields below which a result has usage, finish reason and model."""
