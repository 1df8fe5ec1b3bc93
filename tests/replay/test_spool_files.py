"""Replaying a spool: what a process could not deliver by its end."""

from __future__ import annotations

import subprocess
import sys

import pytest

import otel_rollout
from otel_rollout.errors import ConfigurationError
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.files.file_lock import lock_shared
from otel_rollout.folder import AppendFile, append_frame, scan_frames, stored_file
from otel_rollout.otlp import encode_spans
from otel_rollout.replay import describe, remove_delivered
from otel_rollout.testing import InMemorySpanExporter
from tests.replay.recordings import Memory, run_agent


def files(folder):
    return sorted(path.name for path in folder.rglob("*.otlp.zst"))


class TestSpool:
    """The files of a spool."""

    def test_its_trajectories_are_sent_whole(self, spool, replayed, memory):
        """Trajectories go in the order of steps, as those of a trace folder, each with all its spans."""
        done = replayed(spool(), memory)

        assert (done.report.delivered, len(memory.spans)) == (4, 12)
        sent = [span.attributes["rollout.step"] for span in memory.spans]
        assert sent == sorted(sent)

    def test_a_line_of_many_trajectories_is_read_once(self, replayed, memory, tmp_path, project, monkeypatch):
        """Trajectories that ran side by side share the lines of a spool: those are not read for each of them."""
        recorded = InMemorySpanExporter()
        otel_rollout.init(project, "exp-1", backend=recorded)
        for sample in range(4):
            run_agent(1, sample, 0)
        otel_rollout.shutdown(30.0)
        file = AppendFile(tmp_path / "memory" / "host-1-abcd-000000.otlp.zst")
        for place in range(3):
            append_frame(file, encode_spans(recorded.spans[place::3]))
        file.close()
        monkeypatch.setattr(stored_file, "MAX_CACHED_BYTES", 0)
        read, places = stored_file.StoredFile.read_request, []
        monkeypatch.setattr(
            stored_file.StoredFile, "read_request", lambda self, row: places.append(row) or read(self, row)
        )

        done = replayed(tmp_path, memory)

        assert (done.report.delivered, done.report.spans, len(places)) == (4, 12, 3)

    def test_a_root_that_is_not_in_it_may_be_delivered(self, replayed, memory, tmp_path, project):
        """Of a trajectory of which a process delivered the root, the note on it is no claim that the process died."""
        recorded = InMemorySpanExporter()
        otel_rollout.init(project, "exp-1", backend=recorded)
        run_agent(1, 0, 0)
        otel_rollout.shutdown(30.0)
        file = AppendFile(tmp_path / "memory" / "host-1-abcd-000000.otlp.zst")
        append_frame(file, encode_spans([span for span in recorded.spans if span.parent is not None]))
        file.close()

        assert replayed(tmp_path, memory).notes == [
            "1 without a root: their process ended before they did, or delivered it"
        ]

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

    def test_filters_work_on_it(self, spool, replayed, memory):
        """With filters only the trajectories that are like that are sent, and that is remembered."""
        folder = spool()

        done = replayed(folder, memory, filters={"step": 1})

        assert done.report.delivered == 2
        assert {span.attributes["rollout.step"] for span in memory.spans} == {1}
        assert replayed(folder, memory, filters={"step": 1}).report.skipped == 2
        assert "no trajectory in" in replayed(folder, memory, filters={"step": 99}).notes[0]


class TestRemoval:
    """`--remove`, which empties a spool."""

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

        assert files(folder) == ["host-1-abcd-000000.otlp.zst"]
        assert (done.report.delivered, done.report.undelivered) == (2, 2)

    def test_goes_without_filters(self, spool, replayed, memory):
        """A file is removed as a whole, so all of it has to be meant."""
        with pytest.raises(ConfigurationError, match=r"it goes without filters"):
            replayed(spool(), memory, is_removing=True, filters={"step": 1})

    def test_skips_torn_frames(self, spool, replayed, memory):
        """What was being written when its process was killed is lost, and said to be."""
        folder = spool()
        file = next(folder.rglob("*000001.otlp.zst"))
        *_, last = scan_frames(file)
        file.write_bytes(file.read_bytes()[: last.offset + last.length - 9])

        done = replayed(folder, memory, is_removing=True)

        assert (done.report.delivered, files(folder)) == (3, [])
        assert f"1 torn frame skipped in {file}" in done.notes
        assert "2 files removed: all that can be read in it is delivered" in done.notes

    def test_keeps_a_damaged_last_batch(self, spool, replayed, memory):
        """Spans that were written whole are not removed for damage, and the backend does not have everything."""
        folder = spool()
        file = next(folder.rglob("*000001.otlp.zst"))
        *_, last = scan_frames(file)
        data = bytearray(file.read_bytes())
        data[last.offset + last.length // 2] ^= 1
        file.write_bytes(data)

        done = replayed(folder, memory, is_removing=True)

        assert (done.report.unreadable, done.report.is_whole, files(folder)) == (1, False, [file.name])

    def test_says_which_file_it_could_not_remove(self, spool):
        """A delivered file that another process has open stays, and the reason is not its name."""
        folder = spool()
        held, other = sorted(folder.rglob("*.otlp.zst"))

        with held.open("rb") as reader:
            assert lock_shared(reader.fileno())
            notes = remove_delivered(folder, {held, other})

        assert files(folder) == [held.name]
        assert notes == [
            "1 file removed: all that can be read in it is delivered",
            "1 file delivered, but not removed: a process has it open, or its folder is read-only",
        ]

    def test_leaves_what_no_process_of_ours_wrote(self, spool, replayed, memory):
        """A file of another name is delivered and stays, and so is one behind a link, whatever its name."""
        folder = spool()
        file = next((folder / "memory").glob("*000001.otlp.zst"))
        theirs = folder.parent / "theirs" / file.name
        theirs.parent.mkdir()
        file.rename(theirs)
        (folder / "memory" / "archive").symlink_to(theirs.parent)
        (folder / "memory" / "dataset.otlp.zst").write_bytes(theirs.read_bytes())

        done = replayed(folder, memory, is_removing=True)

        assert done.report.delivered == 4
        assert files(folder) == ["dataset.otlp.zst"]
        assert theirs.exists()
        assert "1 file removed: all that can be read in it is delivered" in done.notes
        assert "2 files delivered, but not removed: not named as a spool's, or behind a link" in done.notes

    def test_empties_a_spool_into_the_folder_around_it(self, spool, replayed, monkeypatch, tmp_path):
        """A spool may lie in the trace folder that it is for: emptied into it, nothing is there twice."""
        folder = spool(exporter="file")
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(tmp_path))

        with pytest.raises(ConfigurationError, match=r"is in there: replay it to another folder"):
            replayed(folder, "file")
        done = replayed(folder, "file", is_removing=True)

        assert (done.report.delivered, files(folder)) == (4, [])
        assert len(list(otel_rollout.read_trajectories(tmp_path))) == 4


def spoil_beginning(data, first, second):
    """Make the first frame none."""
    data[first.offset] ^= 0xFF


def spoil_content(data, first, second):
    """Make the checksum of the first frame a wrong one."""
    data[first.offset + first.length - 1] ^= 0xFF


class TestDamage:
    """Files that are not as they were written, or can't be opened."""

    @pytest.mark.parametrize("spoil", [spoil_beginning, spoil_content])
    def test_costs_one_batch_and_keeps_the_file(self, spool, replayed, memory, spoil):
        """What is damaged in the middle is counted each time, what is around it is sent, and the file stays."""
        folder = spool(files=1, batches=4)
        file = next(folder.rglob("*.otlp.zst"))
        frames = list(scan_frames(file))
        data = bytearray(file.read_bytes())
        spoil(data, frames[1], frames[2])
        file.write_bytes(data)

        done = replayed(folder, memory, is_removing=True)

        assert files(folder) == [file.name]
        assert (done.report.delivered, done.report.unreadable, done.report.is_whole) == (3, 1, False)
        assert [span.attributes["rollout.step"] for span in memory.spans[::3]] == [0, 2, 3]
        again = replayed(folder, memory, is_removing=True)
        assert (again.report.skipped, again.report.unreadable, files(folder)) == (3, 1, [file.name])

    def test_a_file_that_can_not_be_opened(self, spool, replayed, memory):
        """It is named and counted, and the others are sent and removed."""
        folder = spool()
        closed = folder / "memory" / "host-1-abcd-000000.otlp.zst"
        closed.unlink()
        # Not even root can open this.
        closed.symlink_to(closed)

        done = replayed(folder, memory, is_removing=True)

        assert files(folder) == [closed.name]
        assert (done.report.delivered, done.report.unreadable, done.report.is_whole) == (2, 1, False)
        assert any(str(closed) in line for line in describe(done))


HOLDER = """
import sys
from otel_rollout.folder import AppendFile
file = AppendFile(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


class TestRunningProcess:
    """A file that a running process holds."""

    def test_is_left_alone(self, spool, replayed, memory):
        """It is neither sent nor removed as long as its process lives, and both afterwards."""
        folder = spool()
        held = next(folder.rglob("*000000.otlp.zst"))
        with subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(held)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout.readline() == "held\n"

            first = replayed(folder, memory, is_removing=True)

            assert files(folder) == [held.name]
            process.kill()
        second = replayed(folder, memory, is_removing=True)

        assert (first.report.delivered, second.report.delivered) == (2, 2)
        assert "2 left for later: their process has not finished them" in first.notes
        assert files(folder) == []
