"""Replaying a spool: what a process could not deliver by its end."""

from __future__ import annotations

import subprocess
import sys

import pytest

import otel_rollout
from otel_rollout.delivery.outcome import Outcome, Verdict
from otel_rollout.errors import ConfigurationError
from otel_rollout.testing import InMemorySpanExporter
from otel_rollout.trace_folder.frames import Frame, FrameFile, scan_frames
from otel_rollout.trace_folder.otlp_json import encode_line
from tests.replay.recordings import Memory


def files(folder):
    return sorted(path.name for path in folder.rglob("*.zst"))


class TestSpool:
    """The files of a spool."""

    def test_its_batches_are_sent_in_order(self, spool, replayed, memory):
        """Batches go as they were put there, file after file."""
        done = replayed(spool(), memory)

        assert (done.unit_name, done.report.delivered, len(memory.spans)) == ("batch", 4, 12)
        sent = [(span.attributes["rollout.sample_index"], span.attributes["rollout.step"]) for span in memory.spans]
        assert sent == sorted(sent)

    def test_the_folder_of_the_exporter_is_found(self, spool, replayed, memory):
        """From the folder that OTEL_ROLLOUT_SPOOL names, the exporter gets what was meant for it and nothing else."""
        folder = spool()
        spool(exporter="weave")

        assert replayed(folder, memory).report.delivered == 4
        assert replayed(folder / "weave", memory).report.delivered == 4

    def test_what_was_meant_for_others_is_not_sent_by_mistake(self, spool, replayed, memory):
        """A spool that has nothing for the exporter says what it has, and how to send that elsewhere."""
        folder = spool(exporter="weave")

        with pytest.raises(ConfigurationError, match=r"holds nothing for memory, but for weave: .*spool/weave"):
            replayed(folder, memory)

    def test_a_second_replay_sends_nothing(self, spool, replayed, memory):
        """What is delivered is remembered, batch by batch."""
        folder = spool()
        replayed(folder, memory)

        done = replayed(folder, memory)

        assert (done.report.delivered, done.report.skipped) == (0, 4)

    def test_filters_work_on_it(self, spool, replayed, memory):
        """With filters it is read as any folder: trajectory by trajectory."""
        done = replayed(spool(), memory, filters={"step": 1})

        assert (done.unit_name, done.report.delivered) == ("trajectory", 2)
        assert {span.attributes["rollout.step"] for span in memory.spans} == {1}


class TestRemoval:
    """`--remove`, which empties a spool."""

    def test_removes_what_is_delivered(self, spool, replayed, memory):
        """No file is left, and the next replay finds nothing to do."""
        folder = spool()

        done = replayed(folder, memory, is_removing=True)

        assert files(folder) == []
        assert "2 files removed: all in it is delivered" in done.notes
        assert replayed(folder, memory, is_removing=True).report.delivered == 0

    def test_removes_what_was_delivered_before(self, spool, replayed, memory):
        """A replay without the option, then one with it: nothing is sent twice, and the files go."""
        folder = spool()
        replayed(folder, memory)

        done = replayed(folder, memory, is_removing=True)

        assert (done.report.delivered, done.report.skipped, files(folder)) == (0, 4, [])

    def test_keeps_the_file_of_what_was_not_delivered(self, spool, replayed):
        """A file that holds one batch that was refused stays whole; the other goes."""

        class Refusing(Memory):
            def send(self, spans):
                if spans[0].attributes["rollout.sample_index"] == 0:
                    return Outcome(Verdict.REFUSED, "no")
                return Outcome(Verdict.DELIVERED)

        folder = spool()

        done = replayed(folder, Refusing(), is_removing=True)

        assert files(folder) == ["host-1-abcd-000000.jsonl.zst"]
        assert (done.report.delivered, done.report.undelivered) == (2, 2)

    def test_keeps_everything_once_the_backend_is_away(self, spool, replayed):
        """What was not tried stays."""

        class Away(Memory):
            def send(self, spans):
                return Outcome(Verdict.DENIED, "401")

        folder = spool()

        done = replayed(folder, Away(), is_removing=True)

        assert len(files(folder)) == 2
        assert (done.report.undelivered, done.report.untried) == (1, 3)

    def test_goes_without_filters(self, spool, replayed, memory):
        """A file is removed as a whole, so all of it has to be meant."""
        with pytest.raises(ConfigurationError, match=r"it goes without filters"):
            replayed(spool(), memory, is_removing=True, filters={"step": 1})

    def test_skips_torn_frames(self, spool, replayed, memory):
        """What was being written when its process was killed is lost, and said to be."""
        folder = spool()
        file = next(folder.rglob("*000001.jsonl.zst"))
        last = [frame for frame in scan_frames(file) if isinstance(frame, Frame)][-1]
        file.write_bytes(file.read_bytes()[: last.offset + last.length - 9])

        done = replayed(folder, memory, is_removing=True)

        assert (done.report.delivered, files(folder)) == (3, [])
        assert "1 torn frame skipped" in done.notes


HOLDER = """
import sys
from otel_rollout.trace_folder.frames import FrameFile
file = FrameFile(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


class TestRunningProcess:
    """A file that a running process holds."""

    def test_is_left_alone(self, spool, replayed, memory):
        """It is neither sent nor removed as long as its process lives, and both afterwards."""
        folder = spool()
        held = next(folder.rglob("*000000.jsonl.zst"))
        with subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(held)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout.readline() == "held\n"

            first = replayed(folder, memory, is_removing=True)

            assert files(folder) == [held.name]
            process.kill()
        second = replayed(folder, memory, is_removing=True)

        assert (first.report.delivered, second.report.delivered) == (2, 2)
        assert "1 file left alone: a running process delivers it itself" in first.notes
        assert files(folder) == []

    def test_is_left_alone_with_filters_too(self, spool, replayed, memory):
        """Read trajectory by trajectory, those of the file are left for later."""
        folder = spool()
        held = FrameFile(next(folder.rglob("*000000.jsonl.zst")))

        done = replayed(folder, memory, filters={"step": 1})

        held.close()
        assert (done.report.delivered, done.report.is_whole) == (1, True)
        assert "1 left for later: their process has not finished them" in done.notes

    def test_of_this_very_process_is_left_alone(self, tmp_path, replayed, memory, project):
        """A replay within the process that writes does not take its file from it either."""
        live = InMemorySpanExporter()
        otel_rollout.init(project, "exp-1", backend=live)
        otel_rollout.rollout_trace_op(lambda: None)()
        assert otel_rollout.flush(30.0)
        file = FrameFile(tmp_path / "memory" / "host-1-abcd-000000.jsonl.zst")
        file.append(encode_line(live.spans))

        done = replayed(tmp_path, memory)

        file.close()
        assert (done.report.delivered, done.report.is_whole) == (0, True)
        assert len(done.notes) == 1
