"""Messages on the spans of LLM ops and on the roots of trajectories."""

from __future__ import annotations

import contextlib
import time
import tracemalloc
from typing import Any

import orjson
import pytest
from opentelemetry.sdk.trace import TracerProvider

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op, semconv
from otel_rollout.finish import ChatWriter, Conversation, Conversations, copy_without_payload, cut_messages
from otel_rollout.messages import ChatSide, as_openai, chat_messages, text_message
from otel_rollout.record import runtime
from otel_rollout.testing import InMemorySpanExporter

SYSTEM = {"role": "system", "content": "Be brief."}
QUESTION = {"role": "user", "content": "What is 6 * 7?"}
TOOLS = [{"type": "function", "function": {"name": "calculator", "parameters": {"type": "object"}}}]
CALL = {"id": "call_1", "type": "function", "function": {"name": "calculator", "arguments": '{"expression":"6*7"}'}}
ASKED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
TOOL_RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "42"}
ANSWER = {"role": "assistant", "content": "It is 42."}


@rollout_trace_op(name="chat", kind="LLM")
def chat(messages: list[dict[str, Any]], reply: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Answer like OpenAI's chat completions."""
    reason = "tool_calls" if reply.get("tool_calls") else "stop"
    return {"id": "c", "choices": [{"index": 0, "finish_reason": reason, "message": reply}]}


def run_agent(**options: Any) -> None:
    """Run an agent that calls a tool and answers."""
    history = [SYSTEM, QUESTION]
    with rollout_trace_attr(1, 2, 3):
        for reply in (ASKED, ANSWER):
            chat(history, reply, tools=TOOLS, **options)
            history.append(reply)
            if reply is ASKED:
                history.append(TOOL_RESULT)


def spans_of(exporter: InMemorySpanExporter) -> list[Any]:
    """Return the spans once they are delivered."""
    assert otel_rollout.flush(10.0)
    return exporter.spans


def text(message: dict[str, Any]) -> str:
    """Return the text of a message in the convention's form."""
    return "".join(part.get("content", "") for part in message["parts"])


def messages(span: Any, key: str = semconv.INPUT_MESSAGES) -> list[Any]:
    """Return the messages of a span as values."""
    return orjson.loads(span.attributes[key])


class TestOp:
    """LLM ops."""

    def test_what_it_was_given_and_answered(self, rollout_spans: InMemorySpanExporter) -> None:
        """An op has the whole history, its answer, its tools and its turn; the payload keeps the rest and a preview."""
        run_agent(model="m")
        first, second, _ = spans_of(rollout_spans)

        found = chat_messages(second.attributes)
        assert found is not None
        assert as_openai(found.input) == [SYSTEM, QUESTION, ASKED, TOOL_RESULT]
        assert as_openai(found.output) == [ANSWER]
        assert found.output[0].finish_reason == "stop"
        assert found.tools == [{"type": "function", "name": "calculator", "parameters": {"type": "object"}}]
        reply = {"reply": ANSWER, "options": {"model": "m"}}
        assert orjson.loads(second.attributes[semconv.INPUT_VALUE]) == {"prompt_text": "42", **reply}
        assert second.attributes[semconv.OUTPUT_VALUE] == (
            '{"response_text":"It is 42.","id":"c","choices":[{"index":0,"finish_reason":"stop"}]}'
        )
        assert messages(first, semconv.OUTPUT_MESSAGES)[0]["finish_reason"] == "tool_call"
        assert [span.attributes[semconv.TURN] for span in (first, second)] == [1, 2]

    @pytest.mark.parametrize(
        "place",
        [
            {"meta_info": {"finish_reason": {"type": "length", "length": 8}}},
            {"details": {"finish_reason": "length"}},
            {"generation_info": {"finish_reason": "length"}},
        ],
        ids=lambda place: next(iter(place)),
    )
    def test_finish_reason_beside_the_text(self, rollout_spans: InMemorySpanExporter, place: dict[str, Any]) -> None:
        """An engine's finish reason is the answer's, wherever the engine puts it, and stays where it was."""

        @rollout_trace_op(kind="LLM")
        def complete(prompt: str) -> dict[str, Any]:
            return {"text": "It is", **place}

        complete("6 times 7?")
        (span,) = spans_of(rollout_spans)

        assert [message["finish_reason"] for message in messages(span, semconv.OUTPUT_MESSAGES)] == ["length"]
        assert orjson.loads(span.attributes[semconv.OUTPUT_VALUE]).items() >= place.items()

    def test_a_text_for_a_text(self, rollout_spans: InMemorySpanExporter) -> None:
        """A prompt and an answer that are texts are messages of the user and the assistant, without quotes."""

        @rollout_trace_op(kind="LLM")
        def complete(prompt: str) -> str:
            return "42"

        complete("6 * 7?")
        (span,) = spans_of(rollout_spans)

        assert [text(message) for message in messages(span)] == ["6 * 7?"]
        assert [text(message) for message in messages(span, semconv.OUTPUT_MESSAGES)] == ["42"]
        for key, mime, said in (
            (semconv.INPUT_VALUE, semconv.INPUT_MIME_TYPE, "6 * 7?"),
            (semconv.OUTPUT_VALUE, semconv.OUTPUT_MIME_TYPE, "42"),
        ):
            assert (span.attributes[key], span.attributes[mime]) == (said, "text/plain")

    def test_other_ops_have_none(self, rollout_spans: InMemorySpanExporter) -> None:
        """A tool's arguments stay as they are, whatever they look like."""

        @rollout_trace_op(kind="TOOL")
        def forward(messages: list[dict[str, Any]]) -> str:
            return "done"

        forward([QUESTION])
        (span,) = spans_of(rollout_spans)

        assert chat_messages(span.attributes) is None
        assert orjson.loads(span.attributes[semconv.INPUT_VALUE]) == {"messages": [QUESTION]}

    def test_a_long_message_is_a_preview_in_the_payload(self, rollout_spans: InMemorySpanExporter) -> None:
        """The message is whole; the payload has its beginning and end."""
        chat([{"role": "user", "content": "x" * 5000}], ANSWER)
        (span,) = spans_of(rollout_spans)

        assert text(messages(span)[0]) == "x" * 5000
        shown = orjson.loads(span.attributes[semconv.INPUT_VALUE])["prompt_text"]
        assert len(shown) < 1100
        assert "characters cut]" in shown

    @pytest.mark.parametrize(("inputs", "output"), [(False, True), (True, False), (False, False)])
    def test_capture_options(self, rollout_spans: InMemorySpanExporter, inputs: bool, output: bool) -> None:
        """A side that an op doesn't capture has no messages, on the op and on the root."""

        @rollout_trace_op(kind="LLM", capture_inputs=inputs, capture_output=output)
        def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
            return ANSWER

        with rollout_trace_attr(1):
            ask([QUESTION])
        for span in spans_of(rollout_spans):
            assert (semconv.INPUT_MESSAGES in span.attributes) is inputs
            assert (semconv.INPUT_VALUE in span.attributes) is inputs
            assert (semconv.OUTPUT_MESSAGES in span.attributes) is output
            assert (semconv.OUTPUT_VALUE in span.attributes) is output

    def test_secrets(self, rollout_spans: InMemorySpanExporter) -> None:
        """Secrets are replaced before messages are made, in arguments of tools too; media never leave."""
        arguments = '{"password":"hunter22","expression":"6*7"}'
        call = {**CALL, "function": {"name": "login", "arguments": arguments}}
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 500}}
        with rollout_trace_attr(1):
            chat([{"role": "user", "content": [image]}], {**ASKED, "tool_calls": [call]}, api_key="sk-secret-value")
        spans = spans_of(rollout_spans)

        everything = "".join(str(dict(span.attributes)) for span in spans)
        assert not any(secret in everything for secret in ("hunter22", "sk-secret-value", "QUJDQUJD"))
        (part,) = messages(spans[0], semconv.OUTPUT_MESSAGES)[0]["parts"]
        assert part["arguments"] == {"password": "[redacted]", "expression": "6*7"}

    def test_turned_off(self) -> None:
        """A setting turns messages off: payloads are whole, and the root has what was annotated."""
        exporter = InMemorySpanExporter()
        otel_rollout.init("p", "e", exporter, chat_messages=False)
        run_agent()
        *turns, root = spans_of(exporter)

        assert not any(semconv.INPUT_MESSAGES in span.attributes for span in (*turns, root))
        assert orjson.loads(turns[0].attributes[semconv.INPUT_VALUE])["messages"] == [SYSTEM, QUESTION]
        assert semconv.INPUT_VALUE not in root.attributes

    def test_a_fault_of_ours(self, rollout_spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> None:
        """If messages can't be made, the payload is sent as it is, and the fault is counted."""
        monkeypatch.delenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS")
        monkeypatch.setattr(ChatWriter, "write_arguments", lambda *_: 1 / 0)
        chat([QUESTION], ANSWER)
        (span,) = spans_of(rollout_spans)

        assert orjson.loads(span.attributes[semconv.INPUT_VALUE])["messages"] == [QUESTION]
        assert otel_rollout.stats().internal_errors == {"writing messages": 1}

    @pytest.mark.parametrize(
        "hostile",
        [
            {"role": "user", "content": [[[[]]], None, 7, {"type": 7}, {"type": "image"}, {"type": "tool_use"}]},
            {"role": "user", "content": {"type": "text", "text": {"deep": 1}}},
            {"role": "assistant", "tool_calls": [1, {"function": {"name": 7, "arguments": float("nan")}}]},
            {"role": "\ud800", "content": "\ud800", "name": 2**70},
            {"role": "tool", "content": object(), "tool_call_id": 5},
            {"type": "reasoning", "summary": [1, {"text": 2}]},
            {"role": "user", "parts": 5},
        ],
        ids=["parts", "dict", "calls", "surrogates", "object", "reasoning", "no parts"],
    )
    def test_hostile_messages(self, rollout_spans: InMemorySpanExporter, hostile: dict[str, Any]) -> None:
        """Whatever a message holds, the attribute is a list of messages with parts that have a type."""
        with rollout_trace_attr(1):
            chat([hostile, QUESTION], hostile)
        span, root = spans_of(rollout_spans)

        for each in (span, root):
            found = chat_messages(each.attributes)
            assert found is not None
            assert all(isinstance(part["type"], str) for message in found.input for part in message.parts)
            as_openai([*found.input, *found.output])


class TestRoot:
    """The root of a trajectory."""

    def test_the_final_conversation(self, rollout_spans: InMemorySpanExporter) -> None:
        """The root has the conversation before the last answer, that answer, and the tools; texts are for lists."""
        run_agent()
        root = spans_of(rollout_spans)[-1]

        found = chat_messages(root.attributes)
        assert found is not None
        assert as_openai(found.input) == [SYSTEM, QUESTION, ASKED, TOOL_RESULT]
        assert as_openai(found.output) == [ANSWER]
        assert [tool["name"] for tool in found.tools] == ["calculator"]
        assert root.attributes[semconv.INPUT_VALUE] == "What is 6 * 7?"
        assert root.attributes[semconv.OUTPUT_VALUE] == "It is 42."

    def test_annotations_win(self, rollout_spans: InMemorySpanExporter) -> None:
        """What the program annotates stands in the lists; the conversation is there as well."""
        with rollout_trace_attr(1):
            annotate(input="task 7", output="42")
            chat([QUESTION], ANSWER)
        root = spans_of(rollout_spans)[-1]

        assert (root.attributes[semconv.INPUT_VALUE], root.attributes[semconv.OUTPUT_VALUE]) == ("task 7", "42")
        assert [text(message) for message in messages(root)] == ["What is 6 * 7?"]
        assert [text(message) for message in messages(root, semconv.OUTPUT_MESSAGES)] == ["It is 42."]

    def test_annotated_messages_stand_once(self, rollout_spans: InMemorySpanExporter) -> None:
        """Annotated messages with which the conversation begins leave the payload, which keeps the prompt's text."""
        with rollout_trace_attr(1):
            annotate(input={"messages": [SYSTEM, QUESTION], "source": "gsm8k"})
            chat([SYSTEM, QUESTION], ANSWER)
        root = spans_of(rollout_spans)[-1]

        assert root.attributes[semconv.INPUT_VALUE] == '{"prompt_text":"What is 6 * 7?","source":"gsm8k"}'
        assert len(messages(root)) == 2

    def test_other_annotated_messages_stay(self, rollout_spans: InMemorySpanExporter) -> None:
        """Annotated messages that the model never got stay in the payload."""
        with rollout_trace_attr(1):
            annotate(input=[SYSTEM])
            chat([QUESTION], ANSWER)
        root = spans_of(rollout_spans)[-1]

        assert orjson.loads(root.attributes[semconv.INPUT_VALUE]) == [SYSTEM]
        assert len(messages(root)) == 1

    def test_annotations_without_an_llm_op(self, rollout_spans: InMemorySpanExporter) -> None:
        """Annotated messages and an annotated answer are a conversation too."""
        with rollout_trace_attr(1):
            annotate(input=[QUESTION], output="42")
        (root,) = spans_of(rollout_spans)

        assert [text(message) for message in messages(root)] == ["What is 6 * 7?"]
        assert [text(message) for message in messages(root, semconv.OUTPUT_MESSAGES)] == ["42"]

    def test_an_annotated_output_of_fields(self, rollout_spans: InMemorySpanExporter) -> None:
        """An annotated object without a message keeps its fields and their names."""
        with rollout_trace_attr(1):
            annotate(output={"answer": "42", "score": 1})
        (root,) = spans_of(rollout_spans)

        assert orjson.loads(root.attributes[semconv.OUTPUT_VALUE]) == {"answer": "42", "score": 1}
        assert semconv.OUTPUT_MESSAGES not in root.attributes

    def test_conversations_of_sub_agents(self, rollout_spans: InMemorySpanExporter) -> None:
        """Conversations with other beginnings stand one after the other, each once, the last answer apart."""
        judge = [{"role": "user", "content": "Is it right?"}]
        with rollout_trace_attr(1):
            chat([QUESTION], ASKED)
            chat(judge, {"role": "assistant", "content": "Yes."})
            chat([QUESTION, ASKED, TOOL_RESULT], ANSWER)
        root = spans_of(rollout_spans)[-1]

        found = chat_messages(root.attributes)
        assert found is not None
        said = [message["content"] for message in as_openai(found.input)]
        assert said == ["Is it right?", "Yes.", "What is 6 * 7?", None, "42"]
        assert as_openai(found.output) == [ANSWER]

    def test_a_failed_turn(self, rollout_spans: InMemorySpanExporter) -> None:
        """If the last turn fails, the root has the conversation that led to it, and no answer."""

        @rollout_trace_op(kind="LLM")
        def fail(messages: list[dict[str, Any]]) -> None:
            raise TimeoutError

        with rollout_trace_attr(1), pytest.raises(TimeoutError):
            fail([QUESTION])
        _, root = spans_of(rollout_spans)

        assert [text(message) for message in messages(root)] == ["What is 6 * 7?"]
        assert semconv.OUTPUT_MESSAGES not in root.attributes
        assert semconv.OUTPUT_VALUE not in root.attributes

    def test_two_exporters(self) -> None:
        """Every exporter gets the same messages."""
        exporters = [InMemorySpanExporter(), InMemorySpanExporter()]
        otel_rollout.init("p", "e", exporters)
        run_agent()
        seen = [[dict(span.attributes) for span in spans_of(exporter)] for exporter in exporters]

        assert seen[0] == seen[1]
        assert semconv.INPUT_MESSAGES in seen[0][-1]

    def test_on_a_provider_that_is_not_ours(self) -> None:
        """Spans of the application's provider have the same messages, set before they end."""
        exporter = InMemorySpanExporter()
        otel_rollout.init("p", "e", exporter, tracer_provider=TracerProvider(shutdown_on_exit=False))
        run_agent(api_key="sk-secret-value")
        first, _, root = spans_of(exporter)

        assert [text(message) for message in messages(first)] == ["Be brief.", "What is 6 * 7?"]
        found = chat_messages(root.attributes)
        assert found is not None
        assert as_openai(found.input) == [SYSTEM, QUESTION, ASKED, TOOL_RESULT]
        assert as_openai(found.output) == [ANSWER]
        assert (root.attributes[semconv.INPUT_VALUE], root.attributes[semconv.OUTPUT_VALUE]) == (
            "What is 6 * 7?",
            "It is 42.",
        )
        assert "sk-secret-value" not in str([dict(span.attributes) for span in (first, root)])


class Letters:
    """A tokenizer whose ids are code points."""

    def decode(self, ids: list[int]) -> str:
        """Return the text."""
        return "".join(map(chr, ids))


class Server:
    """An engine that takes and returns token ids."""

    def __init__(self) -> None:
        self.tokenizer = Letters()

    @rollout_trace_op(name="generate", kind="LLM")
    def generate(self, request_id: str, prompt_ids: list[int], reply: str) -> dict[str, Any]:
        """Return the ids of the reply."""
        return {"token_ids": [*map(ord, reply)], "stop_reason": "stop"}


class TestTokens:
    """Turns of token ids."""

    @pytest.mark.parametrize("is_template", [True, False])
    def test_the_whole_prompt_each_turn(self, is_template: bool) -> None:
        """Of prompts that grow with each turn, the root has each message once, in a known template or not."""
        start, end, header = ("<|user|>", "<|end|>", "<|assistant|>") if is_template else ("Q:", ";", "A:")
        exporter = InMemorySpanExporter()
        otel_rollout.init("p", "e", exporter, token2text=True)
        prompt = f"{start}What is 6 * 7?{end}{header}"
        with rollout_trace_attr(1):
            for reply in ("Think.", "42"):
                Server().generate("r", [*map(ord, prompt)], reply + end)
                prompt += f"{reply}{end}{start}Go on.{end}{header}"
        first, second, root = spans_of(exporter)

        assert list(orjson.loads(first.attributes[semconv.INPUT_VALUE])) == [
            "prompt_text",
            "request_id",
            "reply",
            "prompt_ids",
        ]
        assert list(orjson.loads(first.attributes[semconv.OUTPUT_VALUE])) == [
            "response_text",
            "token_ids",
            "stop_reason",
        ]
        said = [text(message) for message in messages(root)]
        answer = text(messages(root, semconv.OUTPUT_MESSAGES)[0])
        if is_template:
            assert said == ["What is 6 * 7?", "Think.", "Go on."]
            assert answer == root.attributes[semconv.OUTPUT_VALUE] == "42"
            assert root.attributes[semconv.INPUT_VALUE] == "What is 6 * 7?"
        else:
            assert said == ["Q:What is 6 * 7?;A:", "Think.;", "Q:Go on.;A:"]
            assert answer == "42;"
        assert second.attributes[semconv.TURN] == 2


class TestBounds:
    """Limits, in bytes."""

    def test_the_limit_of_a_payload(self) -> None:
        """Messages beyond the limit are cut, stay messages, and the first and last stay; the root counts the bytes."""
        exporter = InMemorySpanExporter()
        otel_rollout.init("p", "e", exporter, max_payload_bytes=2000)
        history = [SYSTEM, *({"role": "user", "content": f"{number} " + "x" * 300} for number in range(50)), QUESTION]
        with rollout_trace_attr(1):
            chat(history, ANSWER)
        span, root = spans_of(exporter)

        for each in (span, root):
            said = [text(message) for message in messages(each)]
            assert len(each.attributes[semconv.INPUT_MESSAGES]) <= 2000
            assert (said[0], said[-1]) == ("Be brief.", "What is 6 * 7?")
            assert any("messages cut]" in one for one in said)
        assert root.attributes[semconv.TRUNCATED_BYTES] > 15_000

    @pytest.mark.parametrize("limit", [0, 1, 10, 100, 200, 1000, 5000])
    def test_any_limit(self, limit: int) -> None:
        """Whatever the limit is, what is left are messages, and the cut is counted."""
        given = [
            orjson.dumps({"role": "assistant", "parts": [{"type": "text", "content": "x" * size}], "finish_reason": ""})
            for size in (10, 4000, 10, 300)
        ]

        kept, cut = cut_messages(given, limit)

        assert all(orjson.loads(message)["parts"][0]["type"] == "text" for message in kept)
        assert cut == sum(map(len, given)) + len(given) - sum(map(len, kept)) - len(kept)
        assert limit < 200 or sum(map(len, kept)) <= limit

    def test_a_limit_of_characters(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """OpenTelemetry's limit of an attribute holds for messages; where none fits there are none."""
        monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "50")
        exporter = InMemorySpanExporter()
        otel_rollout.init("p", "e", exporter)
        chat([QUESTION], ANSWER)
        (span,) = spans_of(exporter)

        assert semconv.INPUT_MESSAGES not in span.attributes
        assert max(len(value) for value in span.attributes.values() if isinstance(value, str)) <= 50

    def test_a_full_queue_beside_another(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Copies without payload in one exporter's full queue change nothing of the conversation in the other's."""
        full, other = InMemorySpanExporter(), InMemorySpanExporter()
        otel_rollout.init("p", "e", backend=[full, other], schedule_delay_ms=60_000)
        pipeline: Any = runtime.pipeline
        queue, other_queue = pipeline.queues
        put = queue.put
        monkeypatch.setattr(queue, "put", lambda span: put(copy_without_payload(span)))
        with rollout_trace_attr(1):
            chat([QUESTION], {"role": "assistant", "content": "x" * 1000})
            assert other_queue.flush(10.0)
            assert queue.flush(10.0)
            annotate(output="x" * 1000)
            held: list[Any] = []
            monkeypatch.setattr(other_queue, "put", held.append)
        assert queue.flush(10.0)
        monkeypatch.undo()
        other_queue.put(held[0])
        assert otel_rollout.flush(10.0)

        found = chat_messages(other.spans[-1].attributes)
        assert found is not None
        assert [as_openai(found.input), len(as_openai(found.output))] == [[QUESTION], 1]

    def test_failed_ops_on_a_provider(self) -> None:
        """The messages of an op that fails go with its span."""
        otel_rollout.init("p", "e", tracer_provider=TracerProvider())

        @rollout_trace_op(kind="LLM")
        def fail(messages: list[dict[str, Any]]) -> None:
            raise TimeoutError

        def fail_once(number: int) -> None:
            with rollout_trace_attr(1), contextlib.suppress(TimeoutError):
                fail([{"role": "user", "content": str(number) * 500_000}])

        fail_once(1)
        tracemalloc.start()
        try:
            for number in range(10):
                fail_once(number)
            assert otel_rollout.flush(10.0)
            assert tracemalloc.get_traced_memory()[0] < 2_000_000
        finally:
            tracemalloc.stop()

    def test_all_conversations_together(self) -> None:
        """Beyond the bound of all, the conversation that rested longest is dropped, and its root counts the bytes."""
        side = ChatSide([text_message("user", "x" * 1000)], None)
        conversations = Conversations(10_000, max_bytes=7000)
        for trace_id in range(3):
            conversations.add(trace_id, side, None)

        assert [len(conversations.take(trace_id).messages()) for trace_id in (1, 2)] == [1, 1]
        dropped = conversations.take(0)
        assert (dropped.messages(), dropped.prompt) == ([], None)
        assert dropped.cut > 1000

    def test_everything_of_a_conversation_counts(self) -> None:
        """Answers, tools and decoded prompts count as well, so trajectories that never end don't fill the memory."""
        answer = ChatSide([text_message("assistant", "x" * 1000)], None)
        conversations = Conversations(10_000, max_bytes=10_000)
        for trace_id in range(100):
            conversations.add(trace_id, None, answer)

        assert sum(bool(conversations.take(trace_id).answer) for trace_id in range(100)) < 10

    def test_tools_of_a_trajectory(self) -> None:
        """Definitions beyond the limit are cut, and counted."""
        conversation = Conversation(10_000)
        for number in range(100):
            tools = [{"type": "function", "name": f"tool{number}", "description": "x" * 1000}]
            conversation.add(ChatSide([text_message("user", "Go.")], None, tools), None)

        assert 5 < len(conversation.tools) < 10
        assert conversation.tools_cut > 1000

    def test_time_of_many_turns(self) -> None:
        """A turn takes no longer after thousands of others."""
        conversation = Conversation(2**20)
        answer = ChatSide([text_message("assistant", "y", "")], None)

        def seconds() -> float:
            start = time.process_time()
            for number in range(1000):
                conversation.add(ChatSide([text_message("user", f"x{number}")], None, continues=True), answer)
            return time.process_time() - start

        first, *_, last = [seconds() for _ in range(10)]

        assert last < 5 * first + 0.05
