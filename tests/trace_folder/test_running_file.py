"""The file of running trajectories, and the durations in it."""

from __future__ import annotations

import json
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rollout.folder import OpDurations, RunningFile, running_file
from otel_rollout.record import OpenOp, OpenTrajectory
from tests.trace_folder.recordings import START
from tests.trace_folder.writing import make_span, random_id

WORKER = "host-1-abcd"


def running(**changes):
    """A running trajectory."""
    tags = {"rollout.step": 7, "rollout.sample_index": 3, "rollout.rollout_n": 1, "rollout.validate": False}
    fields = {"trace_id": f"{1:032x}", "name": "agent", "tags": tags, "start_time": START, "op": None, "ops": 0}
    return OpenTrajectory(**{**fields, **changes})


class TestRunningFile:
    """One process's file."""

    def test_content(self, tmp_path):
        """It has the trajectories with their tags and ops, the process, and the time."""
        file = RunningFile(tmp_path, WORKER)
        file.write([running(op=OpenOp("search", "TOOL", START + 5, '{"q": 1}'), ops=1)], OpDurations())
        content = json.loads(file.path.read_text())
        [told] = content["trajectories"]
        assert told["op"] == {"name": "search", "kind": "TOOL", "start_time": START + 5, "input": '{"q": 1}'}
        assert (told["step"], told["sample_index"], told["rollout_n"], told["validate"]) == (7, 3, 1, False)
        assert content["open"] == 1
        assert file.path.name == "host-1-abcd.running.json"
        assert stat.S_IMODE(file.path.stat().st_mode) == 0o600

    def test_nothing_runs(self, tmp_path):
        """The file is removed once nothing runs, and not made before."""
        file = RunningFile(tmp_path, WORKER)
        file.write([], OpDurations())
        assert list(tmp_path.iterdir()) == []
        file.write([running()], OpDurations())
        file.write([], OpDurations())
        assert not file.path.exists()

    def test_hostile_names(self, tmp_path):
        """Names without end and lone surrogates are written as JSON that every reader takes."""
        file = RunningFile(tmp_path, WORKER)
        op = OpenOp("\udfff", "\ud800" * 10_000, START)
        file.write([running(name="\ud800" * 10_000, op=op, ops=1)], OpDurations())
        [told] = json.loads(file.path.read_bytes())["trajectories"]
        assert len(told["name"]) == len(told["op"]["kind"]) == 256

    def test_a_full_disk(self, tmp_path):
        """What was written last stays, and no half file stays beside it."""
        resource = pytest.importorskip("resource")
        file = RunningFile(tmp_path, WORKER)
        file.write([running()], OpDurations())
        before = file.path.read_bytes()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            with pytest.raises(OSError, match="too large"):
                file.write([running()] * 100, OpDurations())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert [path.read_bytes() for path in file.path.parent.iterdir()] == [before]

    def test_bound(self, tmp_path, monkeypatch):
        """Beyond a bound those that run longest are written, and the number of all."""
        monkeypatch.setattr(running_file, "MAX_TRAJECTORIES", 2)
        file = RunningFile(tmp_path, WORKER)
        file.write([running(name=str(number)) for number in range(3)], OpDurations())
        content = json.loads(file.path.read_text())
        assert ([each["name"] for each in content["trajectories"]], content["open"]) == (["0", "1"], 3)

    def test_a_link_in_its_place(self, tmp_path):
        """What a symlink with the file's name leads to is not written."""
        file = RunningFile(tmp_path, WORKER)
        file.path.parent.mkdir()
        other = tmp_path / "other"
        other.write_text("mine")
        file.path.with_name(f".{file.path.name}.new").symlink_to(other)
        with pytest.raises(OSError, match=r"symbolic link|Too many levels"):
            file.write([running()], OpDurations())
        assert other.read_text() == "mine"


def op(name, nanoseconds):
    """An ended op."""
    parent = make_span(random_id(16)).context
    span = make_span(parent.trace_id, parent, name=name)
    span._end_time = span.start_time + nanoseconds
    return span


class TestOpDurations:
    """Durations in buckets."""

    @given(st.lists(st.integers(1_000, 10**13), min_size=1, max_size=50), st.sampled_from([0.5, 0.99]))
    def test_percentile(self, durations, share):
        """A percentile is at most 19% above the true one, and not below it."""
        found = OpDurations()
        found.add([op("search", each) for each in durations])
        true = sorted(durations)[max(0, -(-len(durations) * share // 1).__int__() - 1)] / 1e9
        answer = found.percentile("search", share)
        assert answer is not None
        assert true * 0.999 <= answer <= true * 1.2

    def test_merge(self):
        """Counts of two processes, through JSON, are those of one that has all."""
        one, other, both = OpDurations(), OpDurations(), OpDurations()
        spans = [op("search", 10**number) for number in range(4, 12)]
        one.add(spans[:3])
        other.add(spans[3:])
        both.add(spans)
        one.merge(json.loads(json.dumps(other.as_json())))
        assert one.as_json() == both.as_json()

    def test_bound(self):
        """Names beyond a bound are not counted."""
        found = OpDurations()
        found.add([op(str(number), 1000) for number in range(257)])
        assert len(found.as_json()) == 256

    def test_roots_are_no_ops(self):
        """A root's duration is not counted."""
        found = OpDurations()
        found.add([make_span(random_id(16))])
        assert found.as_json() == {}
