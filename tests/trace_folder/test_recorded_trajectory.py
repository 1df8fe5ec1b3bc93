"""What a recorded trajectory says of itself, and what its spans are."""

from __future__ import annotations

import json

import pytest

from otel_rollout import RecordedTrajectory, UnreadableTraceError, read_trajectories, semconv
from otel_rollout.folder.folder_writer import FolderWriter
from otel_rollout.messages import convert_messages
from otel_rollout.otlp import decode_spans, encode_spans, request_of_json
from tests.trace_folder.recordings import write_folder

from .recordings import SECOND, START, make_span, make_trajectory, trace_id_of, write_frames


def recorded(folder, *trajectories) -> list[RecordedTrajectory]:
    return list(read_trajectories(write_folder(folder, *trajectories)))


class TestMessages:
    """Its conversation."""

    def test_form_of_openai(self, tmp_path):
        """It is the conversation in the form that a client of OpenAI's takes, each message once."""
        call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
        chat = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is 1 + 2?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "3", "name": "add"},
            {"role": "assistant", "content": "It is 3."},
        ]
        trace_id = trace_id_of(1, 0, 0)
        standard = [message.as_json() for each in chat for message in convert_messages(each)]
        turns = [
            make_span(
                "generate",
                10 + at,
                trace_id,
                seconds=(at / 10, at / 10 + 0.05),
                attributes={
                    semconv.SPAN_KIND: "LLM",
                    semconv.INPUT_MESSAGES: json.dumps(standard[:at], separators=(",", ":")),
                    semconv.OUTPUT_MESSAGES: json.dumps(standard[at : at + 1]),
                },
            )
            for at in (2, 4)
        ]
        [found] = recorded(tmp_path, [*turns, make_trajectory()[-1]])
        assert found.messages == chat
        # A generation that failed has no answer.
        failed = make_span(
            "generate", 20, trace_id, error="timeout", seconds=(0.8, 0.9), attributes=turns[1].attributes
        )
        [found] = recorded(tmp_path / "failed", [turns[0], failed, make_trajectory()[-1]])
        assert [each["role"] for each in found.messages][:4] == ["system", "user", "assistant", "tool"]
        assert "timeout" not in str(found.messages)


class TestFields:
    """What the index says."""

    def test_a_trajectory(self, tmp_path):
        """Every field is what was recorded."""
        [found] = recorded(tmp_path, make_trajectory(7, "uid", 3, reward=0.5, status="truncated", scorer="exact"))
        assert found.trace_id == f"{trace_id_of(7, 'uid', 3):032x}"
        assert (found.step, found.sample_index, found.rollout_n, found.validate) == (7, "uid", 3, False)
        assert (found.experiment_name, found.project_name, found.run_id) == ("exp", "project", "run")
        assert (found.status, found.reward, found.failed, found.has_root) == ("truncated", 0.5, False, True)
        assert (found.name, found.start_time, found.end_time) == ("rollout", START, START + SECOND)
        assert (found.duration, found.span_count) == (1.0, 3)
        assert found.size_bytes == len(encode_spans(found.spans))
        assert 0 < found.stored_bytes < found.size_bytes
        assert found.attributes["scorer"] == "exact"
        assert "input.value" not in found.attributes

    def test_an_op_outside_any_trajectory(self, tmp_path):
        """What has no tags has none, and is there."""
        [found] = recorded(tmp_path, [make_span("op", 1, 5, parent=None, error="failed")])
        assert (found.step, found.sample_index, found.rollout_n, found.status, found.reward) == (None,) * 5
        assert (found.validate, found.failed, found.has_root, found.name) == (False, True, True, "op")

    @pytest.mark.parametrize(("status", "failed"), [("completed", False), ("error", True), ("cancelled", False)])
    def test_failed(self, tmp_path, status, failed):
        """A trajectory has failed where its status says so; a cancelled one, whose root is an error too, has not."""
        [found] = recorded(tmp_path, make_trajectory(1, status=status, reward=None))
        assert (found.status, found.failed, found.reward) == (status, failed, None)

    def test_shows_itself(self, tmp_path):
        """In a debugger it says which it is."""
        [found] = recorded(tmp_path, make_trajectory(7, 1, 2))
        assert repr(found) == (
            f"<RecordedTrajectory {found.trace_id} step=7 sample_index=1 rollout_n=2 status='completed' reward=1.0>"
        )


class TestSpans:
    """What is read on first use."""

    def test_are_read_once(self, tmp_path):
        """They are read on first use and kept while the trajectory is."""
        [found] = recorded(tmp_path, make_trajectory(1))
        spans = found.spans
        for path in tmp_path.rglob("*.otlp.zst"):
            path.unlink()
        assert found.spans is spans

    def test_a_file_that_is_gone(self, tmp_path):
        """Spans whose file was removed meanwhile are an error, not an empty list."""
        [found] = recorded(tmp_path, make_trajectory(1))
        for path in tmp_path.rglob("*.otlp.zst"):
            path.unlink()
        with pytest.raises(UnreadableTraceError, match=found.trace_id):
            _ = found.spans

    def test_a_damaged_frame(self, tmp_path):
        """A frame whose bytes have changed is an error that names the file, never a wrong trajectory."""
        [found] = recorded(tmp_path, make_trajectory(1))
        [path] = tmp_path.rglob("*.otlp.zst")
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)
        with pytest.raises(UnreadableTraceError, match=path.name):
            _ = found.spans

    def test_otlp_json(self, tmp_path):
        """As OTLP JSON it is one line with all of its spans, also where they stand in several."""
        spans = make_trajectory(1)
        write_frames(tmp_path / "a.otlp.zst", spans[:1])
        write_frames(tmp_path / "b.otlp.zst", spans[1:])
        [found] = read_trajectories(tmp_path)
        assert (found.has_root, found.status, found.name, found.span_count) == (True, "completed", "rollout", 3)
        line = found.otlp_json()
        assert b"\n" not in line
        assert [span.name for span in decode_spans(request_of_json(line))] == ["generate", "look_up", "rollout"]

    def test_a_journal_that_is_gone(self, tmp_path):
        """A running trajectory whose spans are nowhere any more is an error that says so."""
        writer = FolderWriter(tmp_path)
        writer.write(make_trajectory(1)[:2])
        writer.write(make_trajectory(2))
        [running, _] = read_trajectories(tmp_path)
        for path in tmp_path.glob("open/*"):
            path.unlink()
        with pytest.raises(UnreadableTraceError, match=running.trace_id):
            _ = running.spans
        writer.close()
