"""What is written in the chat format is read back the same."""

from otel_rollout.demo import (
    ASSISTANT,
    ToolCall,
    find_answer,
    find_tool_calls,
    write_answer,
    write_message,
    write_tool_call,
)
from otel_rollout.messages import answer_message, read_template


class TestMessages:
    """A conversation as text."""

    def test_are_read_back(self):
        """A conversation is the messages that were written into it; the one that is still open does not count."""
        messages = [("system", "Solve it."), ("user", "1 < 2?\nSay so."), ("tool", "")]
        text = "".join(write_message(role, said) for role, said in messages) + ASSISTANT
        assert [(message.role, message.text) for message in read_template(text)] == messages


class TestToolCalls:
    """Tool calls as text."""

    def test_are_read_back_in_order(self):
        """All calls of a message are found, quotes and all."""
        calls = [ToolCall("lookup", 'the "best" price'), ToolCall("calculator", "1 + 1")]
        assert find_tool_calls("I try.\n" + "\n".join(map(write_tool_call, calls))) == calls

    def test_are_tool_calls_on_spans(self):
        """Backends show them as calls of tools, which the messages on spans have as parts of their own."""
        call = write_tool_call(ToolCall("lookup", "price of a pen"))
        words, part = answer_message(f"I need the price.\n{call}", "stop").parts
        assert words["content"].strip() == "I need the price."
        assert (part["type"], part["name"], part["arguments"]) == ("tool_call", "lookup", {"entry": "price of a pen"})

    def test_malformed_ones_count_as_none(self):
        """Broken JSON, missing fields and other shapes are passed over."""
        broken = ["{", "[]", "1", '{"name": "lookup"}', '{"name": "lookup", "arguments": {}}']
        assert find_tool_calls("".join(f"<tool_call>{text}</tool_call>" for text in broken)) == []


class TestAnswer:
    """The final answer as text."""

    def test_is_read_back(self):
        """The last answer counts, without the commas between thousands."""
        assert find_answer(write_answer("1") + " or rather " + write_answer("-1,062.5")) == "-1062.5"

    def test_is_none_where_there_is_none(self):
        """Text without an answer has none."""
        assert find_answer("It is 47.") is None
