"""One chat message: its forms, rendered templates and payloads, of plain JSON values.

`Message` has the form of OpenTelemetry's GenAI conventions. `forms` makes it of what client libraries send, `templates`
of rendered text; `inputs` takes the messages out of an op's arguments, `outputs` the answer out of its result,
`streams` joins the pieces of one; `reading` finds them on a span and in any payload; `openai` writes them for backends.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.messages.forms import convert_messages, finish_reason_of, is_message, tool_definitions
    from otel_rollout.messages.inputs import ChatSide, preview, split_input
    from otel_rollout.messages.message import Message, Part, ToolCall, json_of, parse_json, text_message, value_text
    from otel_rollout.messages.names import CALL, PROMPT_TEXT, RESPONSE_TEXT, RESULT
    from otel_rollout.messages.openai import answer_json, as_openai, as_openai_tools, ids_as_text, request_json
    from otel_rollout.messages.outputs import AnswerRead, read_of, split_output
    from otel_rollout.messages.reading import ChatMessages, chat_messages, messages_in, unfolded
    from otel_rollout.messages.templates import answer_message, prompt_messages, read_template
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "forms": ("convert_messages", "finish_reason_of", "is_message", "tool_definitions"),
            "inputs": ("ChatSide", "preview", "split_input"),
            "message": ("Message", "Part", "ToolCall", "json_of", "parse_json", "text_message", "value_text"),
            "names": ("CALL", "PROMPT_TEXT", "RESPONSE_TEXT", "RESULT"),
            "openai": ("answer_json", "as_openai", "as_openai_tools", "ids_as_text", "request_json"),
            "outputs": ("AnswerRead", "read_of", "split_output"),
            "reading": ("ChatMessages", "chat_messages", "messages_in", "unfolded"),
            "templates": ("answer_message", "prompt_messages", "read_template"),
        },
    )
