"""The search of payload, tools and errors."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import Event

from otel_rollout import semconv
from otel_rollout.catalog import Run, Search
from otel_rollout.catalog.search import TextMatcher
from otel_rollout.folder.folder_writer import FolderWriter
from otel_rollout.otlp import encode_spans, json_of_request
from tests.trace_folder.recordings import make_span, make_trajectory, trace_id_of, write_folder, write_lines

QUOTED = 'she said "no", then\n\tleft C:\\temp — naïve 日本 😀 <b>&'


def said(text: str) -> dict:
    """Return the attributes of a generation that says a text."""
    message = [{"role": "assistant", "parts": [{"type": "text", "content": text}]}]
    return {semconv.SPAN_KIND: "LLM", semconv.OUTPUT_MESSAGES: json.dumps(message, ensure_ascii=False)}


def trajectory(step: int, sample: int, *texts: str, **fields):
    """Return the spans of a trajectory that says some texts."""
    trace_id = trace_id_of(step, sample, 0)
    root = make_trajectory(step, sample, **fields)[-1]
    spans = [
        make_span(
            "generate",
            number,
            trace_id,
            attributes={**said(text), semconv.STEP: step},
            seconds=(number, number + 0.5),
        )
        for number, text in enumerate(texts, 2)
    ]
    return [*spans, root]


def search(folder, text, within="text", match_case=False, **filters):
    """Return the hits."""
    found = Search(Run([folder]).read(**filters), text, within, match_case=match_case)
    return [SimpleNamespace(**hit.tags, **hit.match._asdict()) for hit in found]


class TestText:
    """Texts as a reader types them."""

    @pytest.mark.parametrize(
        "text",
        [
            'said "no"',
            "then\n\tleft",
            "C:\\temp",
            "naïve",
            "NAÏVE",
            "日本",
            "😀",
            "<b>&",
            "— n",
            '"',
            "SHE SAID",
        ],
    )
    def test_escapes_are_no_obstacle(self, tmp_path, text):
        """Quotes, line breaks, backslashes and letters of any script are found, though JSON escapes them twice."""
        write_folder(tmp_path, trajectory(1, 0, "nothing"), trajectory(1, 1, "first", QUOTED))
        [hit] = search(tmp_path, text)
        assert (hit.sample_index, hit.where, hit.reward) == (1, "generate", 1.0)
        assert hit.excerpt[hit.start : hit.end].lower() == " ".join(text.lower().split())
        assert hit.span_id == f"{3:016x}"

    @pytest.mark.parametrize("ensure_ascii", [True, False])
    def test_arguments_of_calls(self, tmp_path, ensure_ascii):
        """JSON in JSON in JSON: the arguments of a tool call in a message."""
        arguments = json.dumps({"code": 'print("naïve\n")'}, ensure_ascii=ensure_ascii)
        message = [{"role": "assistant", "tool_calls": [{"function": {"name": "run", "arguments": arguments}}]}]
        attributes = {semconv.SPAN_KIND: "LLM", semconv.OUTPUT_VALUE: json.dumps(message, ensure_ascii=ensure_ascii)}
        spans = make_trajectory(1)
        write_folder(tmp_path, [make_span("generate", 9, trace_id_of(1, 0, 0), attributes=attributes), *spans])
        for text in ('print("naïve', "NAÏVE\n", "ï"):
            assert len(search(tmp_path, text)) == 1, text

    def test_lines_of_other_programs(self, tmp_path):
        """Lines without our tabs, with every letter beyond ASCII escaped, are searched too."""
        line = json_of_request(encode_spans(trajectory(1, 0, QUOTED)))
        (tmp_path / "other.jsonl").write_text(json.dumps(json.loads(line)) + "\n", encoding="ascii")
        for text in ("naïve", "日本", "😀", 'said "no"'):
            assert len(search(tmp_path, text)) == 1, text

    def test_case(self, tmp_path):
        """It is told apart on request."""
        write_folder(tmp_path, trajectory(1, 0, "Error"), trajectory(1, 1, "error"))
        assert [hit.sample_index for hit in search(tmp_path, "ERROR")] == [0, 1]
        assert [hit.sample_index for hit in search(tmp_path, "Error", match_case=True)] == [0]

    def test_names_in_messages_are_no_text(self, tmp_path):
        """Roles, types and tags are nothing that anybody said."""
        write_folder(tmp_path, trajectory(1, 0, "hello"))
        for text in ("assistant", "rollout.step", "LLM"):
            assert search(tmp_path, text) == []

    def test_json_itself(self, tmp_path):
        """A text that looks like JSON is found in payload as it was written."""
        write_folder(tmp_path, trajectory(1, 0, "hello"))
        assert len(search(tmp_path, '"content": "hello"')) == 1

    @settings(max_examples=200)
    @given(st.text(min_size=1, max_size=20), st.text(max_size=5), st.booleans(), st.booleans())
    def test_whatever_is_said_is_found(self, text, before, match_case, ensure_ascii):
        """The comparison of bytes excludes no line that has the text."""
        text = text.encode("utf-8", "replace").decode()
        before = before.encode("utf-8", "replace").decode()
        message = json.dumps([{"role": "user", "content": f"{before}{text}"}], ensure_ascii=ensure_ascii)
        spans = [make_span("generate", 2, 7, attributes={semconv.INPUT_MESSAGES: message})]
        found = TextMatcher(text, match_case=match_case).find(encode_spans(spans), f"{7:032x}")
        assert found is not None


class TestToolsAndErrors:
    """Searches of names of tools, and of what spans failed with."""

    @pytest.fixture
    def folder(self, tmp_path):
        """A tool that failed in one trajectory, and whose name another one only speaks of."""
        error = {semconv.EXCEPTION_TYPE: "TimeoutError", semconv.EXCEPTION_MESSAGE: "took 30 s"}
        tool = {semconv.SPAN_KIND: "TOOL", semconv.TOOL_NAME: "sandbox.run", semconv.INPUT_VALUE: '{"n":7}'}
        failed = make_span(
            "call", 9, trace_id_of(1, 0, 0), attributes=tool, error="no luck", events=(Event("exception", error, 1),)
        )
        called = make_span("call", 9, trace_id_of(1, 2, 0), attributes=tool)
        return write_folder(
            tmp_path,
            [failed, *trajectory(1, 0)],
            trajectory(1, 1, "TimeoutError in sandbox.run: no luck"),
            [called, *trajectory(1, 2)],
        )

    def test_tools(self, folder):
        """The name of a tool that was called, with its arguments, and with its error if it failed."""
        failed = 'sandbox.run {"n":7} → TimeoutError: took 30 s'
        found = {within: search(folder, "SANDBOX", within) for within in ("tool", "failed")}
        assert [hit.excerpt for hit in found["tool"]] == [failed, 'sandbox.run {"n":7}']
        assert [(hit.sample_index, hit.excerpt) for hit in found["failed"]] == [(0, failed)]
        assert {hit.excerpt[hit.start : hit.end] for hits in found.values() for hit in hits} == {"sandbox"}

    def test_tools_of_openllmetry(self, tmp_path):
        """A call is one by the name that other programs give its kind, too."""
        call = make_span("sandbox.run", 9, trace_id_of(1, 0, 0), attributes={"traceloop.span.kind": "tool"})
        write_folder(tmp_path, [call, *trajectory(1, 0)])
        assert [hit.excerpt for hit in search(tmp_path, "sandbox", "tool")] == ["sandbox.run"]

    @pytest.mark.parametrize("text", ["timeouterror", "took 30 s", "no luck"])
    def test_errors(self, folder, text):
        """The type, the message and the status of a span that failed."""
        assert [(hit.sample_index, hit.where) for hit in search(folder, text, "error")] == [(0, "call")]

    @pytest.mark.parametrize("within", ["text", "error"])
    def test_an_error_stands_with_its_class_and_its_message(self, tmp_path, within):
        """A match in the class shows the message, one in the message or the traceback shows the class."""
        error = {
            semconv.EXCEPTION_TYPE: "sandbox.SandboxError",
            semconv.EXCEPTION_MESSAGE: f"exit code 137 {'after a while ' * 20}, out of memory",
            semconv.EXCEPTION_STACKTRACE: f"File one\n{'File two ' * 30}\nFile last",
        }
        tool = {semconv.SPAN_KIND: "TOOL", semconv.TOOL_NAME: "run", semconv.ERROR_TYPE: "sandbox.SandboxError"}
        trace_id = trace_id_of(1, 0, 0)
        events = (Event("exception", error, 1),)
        write_folder(
            tmp_path,
            [make_span("call", 9, trace_id, attributes=tool, error="SandboxError", events=events), *trajectory(1, 0)],
        )
        [by_class] = search(tmp_path, "sandboxerror", within)
        assert by_class.excerpt.startswith("sandbox.SandboxError: exit code 137 after a while")
        [by_message] = search(tmp_path, "out of memory", within)
        assert by_message.excerpt.startswith("SandboxError: …")
        [by_traceback] = search(tmp_path, "file last", within)
        assert by_traceback.excerpt.startswith("SandboxError: …")
        for hit, text in ((by_class, "SandboxError"), (by_message, "out of memory"), (by_traceback, "File last")):
            assert hit.excerpt[hit.start : hit.end] == text

    def test_another_place(self, folder):
        """A search of nothing, or of no such place, is a mistake."""
        with pytest.raises(ValueError, match="text"):
            search(folder, "")
        with pytest.raises(ValueError, match="text, tool, failed, error"):
            search(folder, "x", "payload")


class TestHits:
    """The hits as they come."""

    def test_in_the_order_of_trajectories(self, tmp_path):
        """Step by step, with the tags and the outcome of each; filters apply."""
        write_folder(tmp_path, *(trajectory(step, sample, "yes") for step in (2, 1) for sample in (0, 1)))
        hits = search(tmp_path, "yes")
        assert [(hit.step, hit.sample_index) for hit in hits] == [(1, 0), (1, 1), (2, 0), (2, 1)]
        assert {(hit.experiment_name, hit.run_id, hit.status) for hit in hits} == {("exp", "run", "completed")}
        assert len(search(tmp_path, "yes", step=2)) == 2
        assert search(tmp_path, "yes", step={None}) == []
        assert search(tmp_path, "yes", validate=True) == []
        assert search(tmp_path, "yes", experiment="other") == []

    def test_one_for_each_trajectory(self, tmp_path):
        """The first span that has the text; later turns repeat it."""
        write_folder(tmp_path, trajectory(1, 0, "no", "yes", "yes"))
        assert [hit.span_id for hit in search(tmp_path, "yes")] == [f"{3:016x}"]

    def test_a_limit(self, tmp_path):
        """Beyond it the search stops, and says that it was cut."""
        write_folder(tmp_path, *(trajectory(1, sample, "yes") for sample in range(5)))
        found = Search(Run([tmp_path]).read(), "yes", limit=3)
        assert (len(list(found)), found.hits, found.is_cut) == (3, 3, True)
        exact = Search(Run([tmp_path]).read(), "yes", limit=5)
        assert (len(list(exact)), exact.is_cut) == (5, False)

    def test_what_was_searched_is_counted(self, tmp_path):
        """The bytes of all lines, found or not; damaged ones are counted apart."""
        write_folder(tmp_path, trajectory(1, 0, "yes"), trajectory(1, 1, "x" * 1000))
        [path] = tmp_path.glob("steps=*/*.otlp.zst")
        found = Search(Run([tmp_path]).read(), "absent")
        assert list(found) == []
        assert found.searched_bytes > 2000
        data = bytearray(path.read_bytes())
        data[len(data) // 4] ^= 0xFF
        path.write_bytes(data)
        found = Search(Run([tmp_path]).read(), "yes")
        assert len(list(found)) + found.unreadable == 1

    def test_one_that_is_given_up(self, tmp_path):
        """Closing it ends its threads."""
        write_folder(tmp_path, *(trajectory(1, sample, "yes") for sample in range(100)))
        found = Search(Run([tmp_path]).read(), "yes")
        next(found)
        found.close()
        for thread in threading.enumerate():
            if thread.name.startswith("otel-rollout-search"):
                thread.join(120)
                assert not thread.is_alive()

    def test_running_trajectories(self, tmp_path):
        """What a journal or another program's file has is searched too."""
        writer = FolderWriter(tmp_path)
        writer.write(trajectory(1, 0, "yes")[:-1])
        write_lines(tmp_path / "other.jsonl", trajectory(2, 0, "yes"))
        assert [(hit.step, hit.status) for hit in search(tmp_path, "yes")] == [(1, None), (2, "completed")]
        writer.close()
