"""The one table of names for messages: the words of client libraries, and of OpenTelemetry's conventions.

The GenAI conventions are in development: a later version than 1.41
(https://github.com/open-telemetry/semantic-conventions/tree/v1.41.0/docs/gen-ai) changes only this table.
"""

from __future__ import annotations

from typing import Final

PROMPT_TEXT: Final = "prompt_text"
RESPONSE_TEXT: Final = "response_text"
"""The decoded texts in the payload of a generation of token ids, which are verl's names."""
MESSAGE_ARGUMENTS: Final = (
    "messages",
    "input_messages",
    "conversation",
    "history",
    "chat_history",
    "chat",
    "prompt",
    "prompts",
    "input",
    "inputs",
)
"""Arguments that hold the conversation if several lists look like one; the first counts."""
PROMPT_ARGUMENTS: Final = ("prompt", "input", "user_prompt", "question", "query", "instruction", "text", "message")
"""Arguments of an LLM op whose text is a user's message; the first counts."""
SYSTEM_ARGUMENTS: Final = ("system", "system_prompt", "system_instruction", "instructions")
"""Arguments whose text comes before the messages: Anthropic's and OpenAI's Responses."""
TOOL_ARGUMENTS: Final = ("tools", "tool_definitions", "tool_schemas", "functions")

ROLES: Final = {"ai": "assistant", "function": "tool", "human": "user", "model": "assistant"}
"""The convention's role for the names of LangChain, OpenAI's old functions, and Gemini."""

PART_TYPES: Final = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "summary_text": "text",
    "reasoning_text": "reasoning",
    "tool_use": "tool_call",
    "server_tool_use": "tool_call",
    "function_call": "tool_call",
    "custom_tool_call": "tool_call",
    "tool_call": "tool_call",
    "tool_result": "tool_call_response",
    "function_call_output": "tool_call_response",
    "custom_tool_call_output": "tool_call_response",
    "tool_call_response": "tool_call_response",
    "thinking": "reasoning",
    "reasoning": "reasoning",
}
"""The convention's type of a part or an item of a message, by the type in OpenAI's and Anthropic's APIs."""
MODALITIES: Final = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "audio": "audio",
    "audio_url": "audio",
    "input_audio": "audio",
    "video": "video",
    "video_url": "video",
    "file": "file",
    "input_file": "file",
    "document": "file",
    "blob": "",
    "uri": "",
}
"""The modality of a media part by its type; empty if the part has it itself."""
REASONING_KEYS: Final = ("reasoning_content", "reasoning", "thinking")
CALL_IDS: Final = ("tool_call_id", "call_id", "tool_use_id", "id")

FINISH_REASON_KEYS: Final = ("finish_reason", "stop_reason", "done_reason")
FINISH_REASONS: Final = {
    "completed": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "function_call": "tool_call",
    "max_output_tokens": "length",
    "max_tokens": "length",
    "refusal": "content_filter",
    "stop_sequence": "stop",
    "tool_calls": "tool_call",
    "tool_use": "tool_call",
}
"""The convention's finish reason in a message; others stay as they are."""
