"""token2text: the text of token ids, beside the ids."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import orjson
import pydantic
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op, semconv
from otel_rollout.finish import add_token_text
from otel_rollout.guard import forget_warnings
from otel_rollout.testing import InMemorySpanExporter


class Letters:
    """A tokenizer whose ids are code points."""

    def decode(self, ids: list[int]) -> str:
        """Return the text."""
        return "".join(map(chr, ids))


def add(output: Any, arguments: Any = None, tokenizer: Any = None) -> Any:
    """Return the output with its texts."""
    return add_token_text(tokenizer or Letters(), arguments, output)[1]


@pytest.fixture(autouse=True)
def _log_again():
    """Each test sees the first warning of its kind."""
    forget_warnings()


class TestWhoseIds:
    """Verl's rule."""

    @pytest.mark.parametrize(
        ("output", "arguments", "texts"),
        [
            (
                {"prompt_ids": [65], "response_ids": [66]},
                {"prompt_ids": [90]},
                ({}, {"prompt_text": "A", "response_text": "B"}),
            ),
            ({"token_ids": [66, 67]}, {"prompt_ids": [65]}, ({"prompt_text": "A"}, {"response_text": "BC"})),
            ({"response_ids": [66], "token_ids": [90]}, None, (None, {"response_text": "B"})),
            ({"prompt_ids": None, "token_ids": None}, {"prompt_ids": [65]}, ({"prompt_text": "A"}, {})),
            ({"answer": 1}, {"prompt_ids": [65]}, ({"prompt_text": "A"}, {})),
            (None, {"prompt_ids": [65]}, ({"prompt_text": "A"}, None)),
            ({"token_ids": []}, {}, ({}, {"response_text": ""})),
            ({"answer": 1}, {"messages": []}, ({}, {})),
        ],
        ids=["agent loop", "generate", "response_ids win", "null", "prompt only", "failed", "empty", "none"],
    )
    def test_rule(self, output, arguments, texts):
        """The prompt's ids are the output's, else the arguments'; the response's `response_ids`, else `token_ids`."""
        given, answered = texts
        seen_arguments, seen = add_token_text(Letters(), arguments, output)

        assert seen == (None if answered is None else {**answered, **output})
        assert seen_arguments == (None if given is None else {**given, **arguments})
        # The texts stand first.
        assert list(seen or ())[: len(answered or ())] == sorted(answered or ())

    @pytest.mark.parametrize("output", ["text with _ids", [1, 2], None, 5])
    def test_output_without_fields(self, output):
        """An output that has no fields stays as it is."""
        assert add(output, {"prompt_ids": [65]}) == output

    @pytest.mark.parametrize("ids", ["65", [65.0], ["A"], [[65]], {"65": 1}, [True]])
    def test_what_is_no_list_of_ids(self, ids):
        """A value that isn't a list of integers is not decoded."""
        assert add({"token_ids": ids}) == {"token_ids": ids}

    def test_text_that_is_there_already(self):
        """A text that the output has itself is kept."""
        assert add({"token_ids": [65], "response_text": "mine"})["response_text"] == "mine"

    def test_real_tokenizer(self):
        """Ids of a real byte-level BPE tokenizer come back as the text that they were made from."""
        pytest.importorskip("tokenizers", reason="tokenizers is not installed")
        from otel_rollout.demo import train_tokenizer

        tokenizer = train_tokenizer()
        output = {"prompt_ids": tokenizer.encode("What is 2 + 3?"), "response_ids": tokenizer.encode("It is 5. ☃")}

        seen = add(output, None, tokenizer)

        assert seen == {**output, "prompt_text": "What is 2 + 3?", "response_text": "It is 5. ☃"}


class TestTokenizersThatFail:
    """No harm comes from a tokenizer."""

    @pytest.mark.parametrize("error", [RuntimeError("no"), BaseException("panic"), KeyError(1)])
    def test_raises(self, error, caplog):
        """If the tokenizer raises, even a panic of a Rust library, the ids stay and one line is logged."""

        class Raising:
            def decode(self, ids: list[int]) -> str:
                raise error

        for _ in range(3):
            assert add({"token_ids": [65]}, {"prompt_ids": [66]}, Raising()) == {"token_ids": [65]}
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert type(error).__name__ in caplog.text

    @pytest.mark.parametrize("result", [None, b"A", ["A"], 5])
    def test_returns_no_text(self, result):
        """A result that is not a text is left out."""

        class Wrong:
            def decode(self, ids: list[int]) -> Any:
                return result

        assert add({"token_ids": [65]}, None, Wrong()) == {"token_ids": [65]}

    def test_text_that_utf8_cannot_hold(self):
        """Half of a character at the end of the ids is replaced."""
        assert add({"token_ids": [65, 0xD800]})["response_text"] == "A?"


class Output(pydantic.BaseModel):
    """The results of verl's servers."""

    token_ids: list[int]


class Watched(Letters):
    """A slow tokenizer that notes who uses it."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.at_once = 0
        self.most_at_once = 0

    def decode(self, ids: list[int]) -> str:
        """Take a while."""
        self.threads.add(threading.get_ident())
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(0.05)
        self.at_once -= 1
        return super().decode(ids)


class Server:
    """An op's `self` with a tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    @rollout_trace_op
    def generate(self, prompt_ids: list[int]) -> Output:
        """Answer."""
        prompt_ids.append(90)
        return Output(token_ids=[66])


class TestThreads:
    """The thread that decodes."""

    def test_off_the_callers_thread_and_one_at_a_time(self):
        """A slow tokenizer costs the caller nothing, is never used by two exporters at once, and once per span."""
        exporters = [InMemorySpanExporter(), InMemorySpanExporter()]
        otel_rollout.init("p", "e", backend=exporters, token2text=True)
        tokenizer = Watched()
        server = Server(tokenizer)

        with rollout_trace_attr(sample_index=1, step=1):
            for _ in range(10):
                server.generate([65])
        assert otel_rollout.flush(30)

        assert threading.get_ident() not in tokenizer.threads
        assert tokenizer.most_at_once == 1
        for exporter in exporters:
            turns = [span.attributes for span in exporter.spans if span.name == "Server.generate"]
            assert [turn[semconv.INPUT_VALUE] for turn in turns] == ['{"prompt_text":"A","prompt_ids":[65]}'] * 10
            assert [turn[semconv.OUTPUT_VALUE] for turn in turns] == ['{"response_text":"B","token_ids":[66]}'] * 10

    def test_on_a_provider_that_is_not_ours(self):
        """Token ids are decoded for the application's exporters too, not on the caller's thread."""
        theirs, tokenizer = InMemorySpanExporter(), Watched()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(theirs))
        otel_rollout.init("p", "e", token2text=True, tracer_provider=provider)
        Server(tokenizer).generate([65])
        assert otel_rollout.flush(30)

        said = [span.attributes[semconv.OUTPUT_VALUE] for span in theirs.spans]
        assert said == ['{"response_text":"B","token_ids":[66]}']
        assert threading.get_ident() not in tokenizer.threads

    def test_off_unless_asked_for(self, rollout_spans):
        """Without token2text no tokenizer is used."""
        tokenizer = Watched()
        Server(tokenizer).generate([65])
        otel_rollout.flush(10)

        assert len(rollout_spans.spans) == 1
        assert tokenizer.threads == set()

    def test_that_hangs(self):
        """A tokenizer that hangs keeps neither the caller nor a flush beyond its timeout."""
        released = threading.Event()

        class Hanging(Letters):
            def decode(self, ids: list[int]) -> str:
                released.wait(120)
                return super().decode(ids)

        exporter = InMemorySpanExporter()
        otel_rollout.init("p", "e", backend=exporter, token2text=True)
        Server(Hanging()).generate([65])
        assert not otel_rollout.flush(0.3)
        released.set()
        assert otel_rollout.flush(30)
        assert orjson.loads(exporter.spans[0].attributes[semconv.OUTPUT_VALUE])["response_text"] == "B"
