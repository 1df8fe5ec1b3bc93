"""A trajectory's conversation: each message once, whatever form it was recorded in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_rollout import semconv
from otel_rollout.facts import said_by, utterances_of
from otel_rollout.messages import ToolCall, messages_in, read_template, text_message, unfolded
from tests.trace_folder.recordings import make_span, make_trajectory

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
OPENAI = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What is 1 + 2?"}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "3"},
    {"role": "assistant", "content": "It is 3."},
]
GENAI = [
    {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
    {"role": "user", "parts": [{"type": "text", "content": "What is 1 + 2?"}]},
    {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "add", "arguments": {"a": 1, "b": 2}}]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "3"}]},
    {"role": "assistant", "parts": [{"type": "text", "content": "It is 3."}]},
]
QWEN = [
    "<|im_start|>system\nBe brief.<|im_end|>\n",
    "<|im_start|>user\nWhat is 1 + 2?<|im_end|>\n<|im_start|>assistant\n",
    '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call><|im_end|>',
    "\n<|im_start|>user\n<tool_response>\n3\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
    "It is 3.<|im_end|>",
]


def turn(number: int, given: Any, said: Any, **attributes: Any):
    """Return a generation that started at `number` seconds."""
    payloads = {semconv.INPUT_VALUE: json.dumps(given), semconv.OUTPUT_VALUE: json.dumps(said)}
    return make_span(
        "generate",
        number,
        1,
        attributes={semconv.SPAN_KIND: "LLM", **payloads, **attributes},
        seconds=(number, number + 0.5),
    )


def openai_turns():
    """Return two generations of a chat client."""
    return [
        turn(2, {"messages": OPENAI[:2]}, OPENAI[2]),
        turn(4, {"messages": OPENAI[:4]}, {"choices": [{"message": OPENAI[4]}]}),
    ]


def genai_turns():
    """Return two generations with the messages of the GenAI conventions."""

    def recorded(number: int, at: int):
        messages = {semconv.INPUT_MESSAGES: json.dumps(GENAI[:at]), semconv.OUTPUT_MESSAGES: json.dumps([GENAI[at]])}
        return make_span(
            "chat", number, 1, attributes={semconv.SPAN_KIND: "LLM", **messages}, seconds=(number, number + 0.5)
        )

    return [recorded(2, 2), recorded(4, 4)]


def verl_turns():
    """Return two generations of token ids with their text."""
    return [
        turn(2, {"prompt_ids": [1] * 20}, {"prompt_text": "".join(QWEN[:2]), "response_text": QWEN[2]}),
        turn(4, {"prompt_ids": [1] * 40}, {"prompt_text": "".join(QWEN[:4]), "response_text": QWEN[4]}),
    ]


def said(text: str) -> tuple[str, tuple[ToolCall, ...]]:
    """Return the words and the calls in a model's text."""
    (message,) = unfolded(text_message("assistant", text))
    return message.text, message.calls


def told(spans) -> list[tuple[str, str]]:
    """Return the role of each message, and its text or its calls."""
    return [
        (each.message.role, each.message.text or " ".join(map(str, each.message.calls)))
        for each in utterances_of(spans)
    ]


class TestConversation:
    """What was said."""

    @pytest.mark.parametrize("turns", [openai_turns, genai_turns, verl_turns])
    def test_each_message_once(self, turns):
        """The second prompt repeats the first; of it only the tool's result is new."""
        assert told(turns()) == [
            ("system", "Be brief."),
            ("user", "What is 1 + 2?"),
            ("assistant", "add(a=1, b=2)"),
            ("tool", "3"),
            ("assistant", "It is 3."),
        ]

    @pytest.mark.parametrize("turns", [openai_turns, genai_turns, verl_turns])
    def test_a_result_has_the_name_of_its_tool(self, turns):
        """By the id of the call, or in a template's text by its place."""
        assert [each.message.name for each in utterances_of(turns()) if each.message.role == "tool"] == ["add"]

    def test_turns_that_are_recorded_by_their_new_messages(self):
        """A prompt without what earlier turns recorded continues the conversation; a failed tool is said once."""
        tool = {semconv.SPAN_KIND: "TOOL", semconv.TOOL_NAME: "add"}
        later = {"prompt_ids": [7], "prompt_ids_start": 12}
        spans = [
            turn(2, {"messages": OPENAI[:2]}, "One."),
            make_span("add", 3, 1, attributes=tool, seconds=(3, 3.5), error="no entry"),
            turn(4, {**later, "messages": [{"role": "tool", "content": "failed: no entry"}]}, "Two."),
            turn(6, {**later, "messages": [{"role": "user", "content": "Sum up."}]}, "Three."),
        ]
        utterances = utterances_of(spans)
        assert [each.message.text for each in utterances][2:] == [
            "One.",
            "failed: no entry",
            "Two.",
            "Sum up.",
            "Three.",
        ]
        assert [each.is_error for each in utterances] == [False, False, False, True, False, False, False]
        assert {each.conversation for each in utterances} == {1}

    @pytest.mark.parametrize(
        "said",
        [
            {"role": "assistant", "reasoning_content": "Hm.", "content": "One."},
            {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nOne."},
            {"role": "assistant", "content": "Hm.</think>One."},
        ],
        ids=["apart", "in the text", "begun by the template"],
    )
    def test_reasoning_that_later_prompts_leave_out(self, said):
        """It is apart from the text, and the conversation goes on."""
        later = [*OPENAI[:2], {"role": "assistant", "content": "One."}, {"role": "user", "content": "Sum up."}]
        spans = [turn(2, {"messages": OPENAI[:2]}, said), turn(4, {"messages": later}, "Two.")]
        utterances = utterances_of(spans)
        assert [each.message.text for each in utterances] == ["Be brief.", "What is 1 + 2?", "One.", "Sum up.", "Two."]
        assert [each.message.reasoning for each in utterances] == ["", "", "Hm.", "", ""]
        assert {each.conversation for each in utterances} == {1}

    def test_another_prompt_is_said(self):
        """A prompt that does not continue the conversation is shown from where it differs."""
        spans = [
            turn(2, {"messages": OPENAI[:2]}, "One."),
            turn(4, {"messages": [{"role": "user", "content": "Sum up."}]}, "Two."),
        ]
        utterances = utterances_of(spans)
        assert [each.message.text for each in utterances] == ["Be brief.", "What is 1 + 2?", "One.", "Sum up.", "Two."]
        assert [each.conversation for each in utterances] == [1, 1, 1, 2, 2]

    def test_a_text_that_grows(self):
        """A completions client is given one text, whatever its argument is called; only what is new is said again."""
        question = "Q: Was the architect born before 1950?\nA:"
        spans = [
            turn(2, {"messages": question}, " Toyo Ito built it."),
            turn(4, {"messages": question + " Toyo Ito built it.\n[P] Ito was born in 1941."}, " So yes."),
        ]
        assert told(spans) == [
            ("user", question),
            ("assistant", " Toyo Ito built it."),
            ("user", "[P] Ito was born in 1941."),
            ("assistant", " So yes."),
        ]

    def test_tools_stand_where_no_prompt_has_their_results(self):
        """Generations of token ids without text: the question is the root's, results are those of the tools' spans."""
        question = {semconv.SPAN_KIND: "AGENT", semconv.INPUT_VALUE: "How many?"}
        tool = {semconv.SPAN_KIND: "TOOL", semconv.OUTPUT_VALUE: '"3"'}
        spans = [
            make_span("rollout", 1, 1, parent=None, attributes=question, seconds=(0, 9)),
            turn(2, {"prompt_ids": [1, 2]}, {"token_ids": [1, 2, 3]}),
            make_span("add", 3, 1, attributes=tool, seconds=(3, 3.5)),
            turn(4, {"prompt_ids": [1, 2]}, {"token_ids": [4]}),
            make_span("fail", 5, 1, attributes={semconv.SPAN_KIND: "TOOL"}, seconds=(5, 6), error="no entry"),
        ]
        ids = "token ids; with token2text they are recorded as text]"
        assert told(spans) == [
            ("user", "How many?"),
            ("assistant", f"[3 {ids}"),
            ("tool", "3"),
            ("assistant", f"[1 {ids}"),
            ("tool", "no entry"),
        ]
        assert utterances_of(spans)[-1].is_error

    @pytest.mark.parametrize("known", [{semconv.TOOL_CALL_ID: "c1"}, {semconv.TOOL_NAME: "add"}, {}])
    def test_a_result_in_the_next_prompt_has_its_span(self, known: dict[str, Any]):
        """By the id of the call, else by the tool's name, else in order; the tool's failure is the result's."""
        tool = make_span("add", 3, 1, attributes={semconv.SPAN_KIND: "TOOL", **known}, seconds=(3, 3.5), error="no")
        (result,) = [each for each in utterances_of([*openai_turns(), tool]) if each.message.role == "tool"]
        assert (result.message.text, result.span, result.is_error) == ("3", tool, True)

    def test_a_result_that_no_message_asked_for_has_the_arguments_of_its_span(self):
        """A loop of one's own calls tools without structured calls in the model's messages."""
        tool = {semconv.SPAN_KIND: "TOOL", semconv.INPUT_VALUE: '{"a": 1, "b": 2}', semconv.OUTPUT_VALUE: '"3"'}
        spans = [
            turn(2, {"messages": OPENAI[:2]}, "add 1 and 2"),
            make_span("add", 3, 1, attributes=tool, seconds=(3, 3.5)),
            turn(4, {"messages": [*OPENAI[:2], {"role": "assistant", "content": "add 1 and 2"}]}, "It is 3."),
        ]
        (result,) = [each.message for each in utterances_of(spans) if each.message.role == "tool"]
        assert (result.name, result.text, list(map(str, result.calls))) == ("add", "3", ["add(a=1, b=2)"])

    def test_a_trajectory_without_generations(self):
        """The root's question and answer stand around its tools."""
        *_, tool, root = make_trajectory(payload="plain text")
        assert told([tool, root]) == [("user", "plain text"), ("tool", "plain text"), ("assistant", "plain text")]

    @pytest.mark.parametrize("depth", [5, 300, 900])
    def test_deep_values_end(self, depth):
        """A payload that is nested without end is drawn with an ellipsis, and raises nothing."""
        nested = '{"message":' * depth + "1" + "}" * depth
        deep = "[" * depth + "]" * depth
        messages = [{"role": "user", "content": json.loads(deep)}]
        assert told([turn(2, json.loads(nested), {"messages": messages})])

    def test_the_models_words(self):
        """What it said, then the tools that it called."""
        first, last = verl_turns()
        assert said_by(first) == "add(a=1, b=2)"
        assert said_by(last) == "It is 3."


class TestMessages:
    """The forms of messages."""

    def test_media_on_a_span(self):
        """They are shown by their address, inline ones without their bytes."""
        parts = [
            {"type": "uri", "modality": "image", "uri": "https://e.com/a.png"},
            {"type": "blob", "modality": "image", "content": "aGk="},
        ]
        messages = json.dumps([{"role": "user", "parts": parts}])
        span = turn(2, None, "A cat.", **{semconv.INPUT_MESSAGES: messages})
        assert told([span])[0] == ("user", "[image: https://e.com/a.png]\n[image: inline]")

    @pytest.mark.parametrize(
        "value", [None, 3, "text", [], [1], {}, {"role": "user"}, [{"content": "x"}], {"role": "judge", "score": 3}]
    )
    def test_what_is_no_message(self, value):
        """Other payloads have none, also an object with a role that says nothing as a message."""
        assert messages_in(value) == []


class TestTemplates:
    """The texts of chat templates."""

    def test_marks_of_another_template_are_text(self):
        """A user may ask about one."""
        text = "<|im_start|>user\nWhat is <|user|>?<|im_end|>\n"
        assert [(each.role, each.text) for each in read_template(text)] == [("user", "What is <|user|>?")]

    def test_a_malformed_call_stays_text(self):
        """The model's mistake can be read."""
        wrong = "<tool_call>{'name': add}</tool_call>"
        assert said(f"First. {wrong}") == (f"First. {wrong}", ())
        right = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
        text, calls = said(f"First. {wrong} \n{right}\n {right} Last.")
        assert (text, len(calls), calls[0].name) == (f"First. {wrong}\n\nLast.", 2, "add")

    @pytest.mark.parametrize(
        "piece",
        [
            *(
                "<tool_call>",
                "<tool_response>",
                "\n ",
                "</tool_call>",
                "<tool_call>\n{",
                "<tool_call><function=f><parameter=a>",
            ),
            *(
                "[TOOL_CALLS]f[ARGS]{",
                "<|python_tag|>{",
                "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0",
            ),
        ],
    )
    def test_many_marks_take_linear_time(self, piece):
        """A model may repeat one until its tokens are used up: 10 MB take linear time, square time takes hours."""
        text = piece * (10_000_000 // len(piece))
        assert said(text)[1] == ()
        (message,) = read_template(f"<|im_start|>assistant\n{text}.")
        assert (message.role, len(message.text)) == ("assistant", len(f"{text}.".lstrip("\n")))


class TestResultsAtTheirCalls:
    """A tool's result is where the tool was called, as the tool returned it."""

    @staticmethod
    def ran(number: int, result: str, name: str = "search"):
        """Return a tool call that started at `number` seconds and returned a text."""
        attributes = {
            semconv.SPAN_KIND: "TOOL",
            semconv.TOOL_NAME: name,
            semconv.OUTPUT_VALUE: result,
            semconv.OUTPUT_MIME_TYPE: semconv.TEXT_MIME_TYPE,
        }
        return make_span(name, number, 1, attributes=attributes, seconds=(number, number + 0.5))

    def test_that_no_later_prompt_has(self):
        """Before the turn of the compacted conversation that comes next, with its whitespace."""
        begin = [{"role": "system", "content": "S"}, {"role": "user", "content": "Who?"}]
        goes_on = [begin[0], {"role": "user", "content": "Summary: nothing so far. Go on."}]
        spans = [
            turn(2, {"messages": begin}, {"role": "assistant", "content": "first"}),
            self.ran(3, '{"results": [], "page": 1}'),
            turn(4, {"messages": goes_on}, {"role": "assistant", "content": "second"}, **{semconv.COMPACTED: True}),
        ]
        said = [each.message.text for each in utterances_of(spans)]
        assert said == ["S", "Who?", "first", '{"results": [], "page": 1}', goes_on[1]["content"], "second"]

    def test_that_one_later_prompt_lacks(self):
        """After the result of the same turn that it has."""
        calls = [{**CALL, "id": id_} for id_ in ("c1", "c2")]
        asked = [{"role": "user", "content": "Both?"}]
        answer = {"role": "assistant", "content": None, "tool_calls": calls}
        result = {"role": "tool", "tool_call_id": "c1", "content": "3"}
        spans = [
            turn(2, {"messages": asked}, answer),
            self.ran(3, "3", "add"),
            self.ran(4, "left out", "add"),
            turn(5, {"messages": [*asked, answer, result]}, {"role": "assistant", "content": "It is 3."}),
        ]
        assert [each.message.text for each in utterances_of(spans)][2:] == ["3", "left out", "It is 3."]
