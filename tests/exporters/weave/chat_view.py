"""The condition under which Weave's page draws a call as a conversation.

Source: `isCallChat` and its neighbours in
https://github.com/wandb/weave/tree/master/weave-js/src/components/PagePanelComponents/Home/Browse3/pages/ChatView
"""

from __future__ import annotations

from typing import Any

__all__ = ["is_drawn_as_chat"]


def is_drawn_as_chat(call: dict[str, Any]) -> bool:
    """Return True if Weave draws the call's inputs and output as messages.

    Args:
        call: The call's record.
    """
    inputs, output = call["inputs"], call["output"]
    if "mistral" in str(inputs.get("model", "")):
        return False
    messages = inputs.get("messages")
    if not isinstance(messages, list) or not all(map(_is_message, messages)):
        return False
    choices = output.get("choices") if isinstance(output, dict) else None
    return isinstance(choices, list) and all(
        isinstance(choice.get("index"), int) and _is_message(choice.get("message")) for choice in choices
    )


def _is_message(message: Any) -> bool:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return False
    calls, content = message.get("tool_calls"), message.get("content")
    if calls is not None:
        return isinstance(calls, list) and all(map(_is_tool_call, calls))
    if content is None or isinstance(content, str):
        return True
    return isinstance(content, list) and all(
        isinstance(part, str) or part.get("type") in ("text", "image_url", "tool_result") for part in content
    )


def _is_tool_call(call: Any) -> bool:
    function = call.get("function")
    return (
        isinstance(call.get("id"), str)
        and call.get("type") == "function"
        and isinstance(function.get("name"), str)
        and isinstance(function.get("arguments"), str)
    )
