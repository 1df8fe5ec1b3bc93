"""What is known after a trajectory's end, or elsewhere: by its handle, by its identity, from any process."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import pickle
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import otel_rollout
from otel_rollout import Trajectory, annotate, find_trajectory, rollout_trace_attr, start_trajectory, stats
from otel_rollout.cli.main import main
from otel_rollout.testing import InMemorySpanExporter

SECOND = 1_000_000_000
PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


def late_attributes(exporter: InMemorySpanExporter) -> list[dict[str, Any]]:
    """Return the attributes of what came late, and check that it is below the root."""
    assert otel_rollout.flush(10.0)
    spans = exporter.as_dicts()
    [root] = [span for span in spans if span["parent_id"] is None]
    late = [span for span in spans if span["name"] == "annotate"]
    assert all(span["parent_id"] == root["span_id"] and span["trace_id"] == root["trace_id"] for span in late)
    return [span["attributes"] for span in late]


class TestHandle:
    """A trajectory that has ended."""

    def test_by_the_trajectory(self, rollout_spans: InMemorySpanExporter):
        """What comes after the end is a span with the facts and the trajectory's tags."""
        with rollout_trace_attr(7, 1, 0) as trajectory:
            pass
        trajectory.annotate(reward=0.5, rewards={"format": 0.2}, advantage=-1, fate="stale", judge="model-a")
        [attributes] = late_attributes(rollout_spans)
        assert attributes["rollout.reward"] == 0.5
        assert json.loads(attributes["rollout.reward_parts"]) == {"format": 0.2}
        assert (attributes["rollout.advantage"], attributes["rollout.fate"]) == (-1.0, "stale")
        assert (attributes["judge"], attributes["rollout.step"]) == ("model-a", 1)

    def test_is_a_linked_span(self, rollout_spans: InMemorySpanExporter):
        """Its span is below the root and linked to it."""
        with rollout_trace_attr(7, 1, 0) as trajectory:
            pass
        trajectory.annotate(reward=0.5)
        assert otel_rollout.flush()
        root, late = rollout_spans.as_dicts()
        assert (late["parent_id"], late["links"]) == (root["span_id"], [root["span_id"]])
        assert late["end_time"] >= root["end_time"]

    @pytest.mark.parametrize("form", ["handle", "pickle"])
    def test_by_what_went_elsewhere(self, rollout_spans: InMemorySpanExporter, form: str):
        """The handle is a text; a pickled trajectory is one."""
        with rollout_trace_attr(7, 1, 0) as trajectory:
            pass
        given: Any = trajectory.handle if form == "handle" else pickle.loads(pickle.dumps(trajectory))
        annotate(reward=1.0, trajectory=given)
        [attributes] = late_attributes(rollout_spans)
        assert attributes["rollout.reward"] == 1.0

    def test_while_it_runs(self, rollout_spans: InMemorySpanExporter):
        """Before the end, the root gets it, wherever the call is."""
        with rollout_trace_attr(1, 1, 0) as outer, rollout_trace_attr(2, 1, 0):
            outer.annotate(reward=0.25, status="truncated", fate="trained")
        assert otel_rollout.flush(10.0)
        roots = {span["attributes"]["rollout.sample_index"]: span["attributes"] for span in rollout_spans.as_dicts()}
        assert (roots[1]["rollout.reward"], roots[1]["rollout.status"], roots[1]["rollout.fate"]) == (
            0.25,
            "truncated",
            "trained",
        )
        assert "rollout.reward" not in roots[2]

    def test_off(self, caplog):
        """While tracing is off there is no handle, and nothing is said."""
        with rollout_trace_attr(1, 1, 0) as trajectory:
            pass
        assert trajectory.handle == ""
        trajectory.annotate(reward=1.0)
        annotate(reward=1.0, trajectory=trajectory.handle)
        pickle.loads(pickle.dumps(trajectory)).annotate(reward=1.0)
        assert not caplog.records
        assert not stats().lost_annotations

    def test_silenced(self, rollout_spans: InMemorySpanExporter, caplog):
        """A trajectory that isn't traced has no handle either."""
        with rollout_trace_attr(1, 1, 0, trace=False) as trajectory:
            pass
        trajectory.annotate(reward=1.0)
        assert not rollout_spans.as_dicts()
        assert not caplog.records

    def test_another_process(self, tmp_path: Path, monkeypatch):
        """The handle goes to another process as a text."""
        folder = tmp_path / "traces"
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(folder))
        otel_rollout.init("p", "e", backend="file")
        with rollout_trace_attr(7, 1, 0) as trajectory:
            pass
        otel_rollout.shutdown()
        program = (
            "import otel_rollout, sys\n"
            "otel_rollout.init('p', 'e', backend='file')\n"
            "otel_rollout.annotate(reward=0.75, trajectory=sys.argv[1])\n"
        )
        subprocess.run([sys.executable, "-c", program, trajectory.handle], check=True)
        [found] = otel_rollout.read_trajectories(folder)
        assert (found.reward, found.has_root, found.span_count) == (0.75, True, 2)
        assert found.duration < 1


class TestLost:
    """What can't be recorded is counted, and said once."""

    @pytest.mark.parametrize("given", [None, "", "no handle", '{"traceparent": "00-0-0-0"}', "x" * 100_000, "[" * 9999])
    def test_no_handle(self, rollout_spans, caplog, given):
        """None isn't the current trajectory; only an empty handle is silent."""
        with rollout_trace_attr(1, 1, 0):
            annotate(reward=1.0, trajectory=given)
        assert otel_rollout.flush()
        [root] = rollout_spans.as_dicts()
        assert "rollout.reward" not in root["attributes"]
        assert stats().lost_annotations == ({} if given == "" else {"unknown trajectory": 1})
        assert bool(caplog.records) is (given != "")

    def test_after_the_shutdown(self, caplog):
        """A handle says that it was traced: that tracing is off is a loss."""
        otel_rollout.init("p", "e", backend=InMemorySpanExporter())
        with rollout_trace_attr(1, 1, 0) as trajectory:
            pass
        otel_rollout.shutdown()
        for _ in range(2):
            trajectory.annotate(reward=1.0)
        assert stats().lost_annotations == {"tracing is off": 2}
        assert sum("while tracing is off" in entry.getMessage() for entry in caplog.records) == 1

    def test_another_experiment(self, caplog):
        """A trajectory of another experiment stays as it is."""
        otel_rollout.init("p", "first", backend=InMemorySpanExporter())
        with rollout_trace_attr(1, 1, 0) as trajectory:
            pass
        otel_rollout.shutdown()
        exporter = InMemorySpanExporter()
        otel_rollout.init("p", "second", backend=exporter)
        trajectory.annotate(reward=1.0)
        assert otel_rollout.flush()
        assert not exporter.as_dicts()
        assert stats().lost_annotations == {"another experiment": 1}

    def test_another_run(self, monkeypatch):
        """So does one of another run, if runs have names."""
        monkeypatch.setenv("OTEL_ROLLOUT_RUN_ID", "first")
        otel_rollout.init("p", "e", backend=InMemorySpanExporter())
        with rollout_trace_attr(1, 1, 0) as trajectory:
            pass
        otel_rollout.shutdown()
        monkeypatch.setenv("OTEL_ROLLOUT_RUN_ID", "second")
        otel_rollout.init("p", "e", backend=InMemorySpanExporter())
        trajectory.annotate(reward=1.0)
        assert stats().lost_annotations == {"another run": 1}

    @pytest.mark.parametrize(
        ("facts", "lost"),
        [
            ({"reward": "high"}, "reward"),
            ({"advantage": object()}, "advantage"),
            ({"fate": "forgotten"}, "fate"),
            ({"rewards": [1]}, "rewards"),
            ({"status": "completed"}, "status"),
            ({"output": "42"}, "output"),
        ],
    )
    def test_no_such_fact(self, rollout_spans, facts, lost):
        """A value that is none, or comes too late, is counted under its name; the others arrive."""
        with rollout_trace_attr(1, 1, 0) as trajectory:
            pass
        trajectory.annotate(**{"reward": 0.5, **facts, "note": "kept"})
        [attributes] = late_attributes(rollout_spans)
        assert attributes["note"] == "kept"
        assert stats().lost_annotations == {lost: 1}
        assert "1 annotations lost" in str(stats())


class TestTwice:
    """A fact that this process gives a second time, after the end, with the same value."""

    def test_is_counted(self, rollout_spans: InMemorySpanExporter, caplog):
        """It is a warning and a count for each; it is recorded all the same, since it may undo another's correction."""
        with rollout_trace_attr(1, 1, 0) as trajectory:
            annotate(reward=0.5)
        for _ in range(3):
            trajectory.annotate(reward=0.5, rewards={"a": 1.0, "b": {"value": 1}}, fate="stale", judge="x")
        assert stats().repeated_annotations == {"reward": 2, "fate": 2, "rewards": 4, "attributes": 2}
        assert "10 annotations given twice" in str(stats())
        assert sum("twice after its end" in entry.getMessage() for entry in caplog.records) == 1
        assert len(late_attributes(rollout_spans)) == 3
        assert not stats().lost_annotations

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ({"reward": 0.5}, {"reward": 0.25}),
            ({"rewards": {"a": 1.0}}, {"rewards": {"a": 2.0, "b": 1.0}}),
            ({"rewards": {"a": True}}, {"rewards": {"a": 1}}),
            ({"fate": "stale"}, {"fate": "trained"}),
            ({"judge": "x"}, {"judge": ["x"]}),
        ],
    )
    def test_a_correction_is_none(self, rollout_spans, caplog, first, second):
        """Another value or another trajectory is none, and neither is a value that comes back."""
        with rollout_trace_attr(1, 1, 0) as trajectory, rollout_trace_attr(1, 1, 0) as other:
            pass
        for each in (first, second, first):
            trajectory.annotate(**each)
        other.annotate(**first)
        assert not caplog.records
        assert stats().repeated_annotations == {}

    @pytest.mark.parametrize(
        "handle",
        [
            "[]",
            "[" * 3000,
            "{",
            '{"traceparent": "00-1-2-01", "tags": {}}',
            json.dumps({"traceparent": PARENT, "tags": []}),
            json.dumps({"traceparent": PARENT, "tags": {"rollout.step": [1]}}),
            json.dumps({"traceparent": PARENT, "tags": {}, "run": 1}),
            json.dumps({"traceparent": PARENT.replace("a", "0"), "tags": {}}),
        ],
    )
    def test_texts_that_are_no_handle(self, rollout_spans, handle):
        """Such a text is no trajectory: what is said of it is counted, and nothing is raised."""
        annotate(reward=1.0, trajectory=handle)
        assert otel_rollout.flush()
        assert rollout_spans.spans == []
        assert sum(stats().lost_annotations.values()) == 1

    def test_by_any_way(self, rollout_spans):
        """The handle and the identity mean the same trajectory."""
        with rollout_trace_attr(sample_index=7, step=1, rollout_n=0) as trajectory:
            pass
        trajectory.annotate(reward=1)
        annotate(reward=1.0, trajectory=trajectory.handle)
        find_trajectory(1, 7, 0).annotate(reward=1)
        assert stats().repeated_annotations == {"reward": 2}

    @pytest.mark.parametrize("is_forked", [True, False])
    def test_in_another_process(self, tmp_path: Path, monkeypatch, is_forked: bool):
        """A forked process knows what its parent gave; any other takes it as news, and the folder has one value."""
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(tmp_path))
        otel_rollout.init("p", "e", backend="file")
        with rollout_trace_attr(7, 1, 0) as trajectory:
            pass
        trajectory.annotate(reward=0.5)
        assert otel_rollout.flush()
        program = (
            "import otel_rollout, sys\n"
            "otel_rollout.init('p', 'e', backend='file')\n"
            "otel_rollout.annotate(reward=0.5, trajectory=sys.argv[1])\n"
            "assert otel_rollout.stats().repeated_annotations == {}\n"
        )
        if is_forked:
            process = multiprocessing.get_context("fork").Process(target=_repeats, args=(trajectory, 0.5))
            process.start()
            process.join()
            assert process.exitcode == 1
        else:
            subprocess.run([sys.executable, "-c", program, trajectory.handle], check=True)
        otel_rollout.shutdown()
        [found] = otel_rollout.read_trajectories(tmp_path)
        assert (found.reward, found.span_count) == (0.5, 3)

    def test_is_bounded(self, rollout_spans, monkeypatch):
        """The latest facts are remembered, and those before them are forgotten."""
        monkeypatch.setattr("otel_rollout.record.annotate.MAX_KNOWN_FACTS", 2)
        trajectories = []
        for _ in range(7):
            with rollout_trace_attr(1, 1, 0) as trajectory:
                trajectories.append(trajectory)
        for each in (*trajectories, trajectories[0], trajectories[-1]):
            each.annotate(reward=0.5)
        assert stats().repeated_annotations == {"reward": 1}


def _repeats(trajectory: Trajectory, reward: float) -> None:
    """Give a reward, and exit with the number of those that came twice."""
    trajectory.annotate(reward=reward)
    repeated = stats().repeated_annotations.get("reward", 0)
    otel_rollout.shutdown()
    sys.exit(repeated)


class TestIdentity:
    """`find_trajectory`: what a trainer calls a trajectory."""

    def test_in_this_process(self, rollout_spans: InMemorySpanExporter):
        """The latest of the same identity is meant, or the numbered one."""
        trajectories = []
        for _ in range(2):
            with rollout_trace_attr(sample_index=7, step=1, rollout_n=3) as trajectory:
                trajectories.append(trajectory.trace_id)
        found = find_trajectory(step=1, sample_index=7, rollout_n=3)
        assert found.trace_id == trajectories[1]
        assert find_trajectory(1, 7, 3, attempt=0).trace_id == trajectories[0]
        found.annotate(reward=0.5)
        assert otel_rollout.flush()
        [late] = [span for span in rollout_spans.as_dicts() if span["name"] == "annotate"]
        assert found.trace_id == f"{late['trace_id']:032x}"

    @pytest.mark.parametrize(
        "other",
        [
            {"step": 2},
            {"sample_index": 8},
            {"rollout_n": 0},
            {"validate": True},
            {"experiment": "x"},
            {"run": "x"},
            {"attempt": 1},
            {"attempt": "x"},
        ],
    )
    def test_unknown(self, rollout_spans, other):
        """What nobody knows has no trace; what it is given is counted."""
        with rollout_trace_attr(sample_index=7, step=1, rollout_n=3):
            pass
        found = find_trajectory(**{"step": 1, "sample_index": 7, "rollout_n": 3, **other})
        assert found.trace_id is None
        found.annotate(reward=1.0)
        assert stats().lost_annotations == {"unknown trajectory": 1}

    def test_off(self):
        """While tracing is off, it is one without a trace, which says nothing."""
        find_trajectory(1, 7, 3).annotate(reward=1.0)
        assert not stats().lost_annotations

    def test_the_latest_are_known(self, rollout_spans, monkeypatch):
        """A bounded number of trajectories is remembered, whatever their identities."""
        monkeypatch.setattr("otel_rollout.record.handle.MAX_REMEMBERED", 3)
        for sample in (0, 1, 2, 2, 3):
            with rollout_trace_attr(sample_index=sample, step=1, rollout_n=0):
                pass
        known = [find_trajectory(1, sample, 0).trace_id is not None for sample in range(4)]
        assert known == [False, False, True, True]

    def test_in_the_trace_folder(self, tmp_path: Path, monkeypatch):
        """A process that writes to a trace folder knows what others have written there."""
        folder = str(tmp_path / "traces")
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", folder)
        otel_rollout.init("p", "e", backend="file")
        with rollout_trace_attr(sample_index=7, step=1, rollout_n=3) as trajectory:
            pass
        with rollout_trace_attr(sample_index=7, step=1, rollout_n=3, validate=True):
            pass
        otel_rollout.RolloutTraceConfig.reset()
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", folder)
        otel_rollout.init("p", "e", backend="file")
        found = find_trajectory(step=1, sample_index=7, rollout_n=3)
        assert found.trace_id == trajectory.trace_id
        found.annotate(reward=0.5)
        otel_rollout.shutdown()
        assert {each.trace_id: each.reward for each in otel_rollout.read_trajectories(folder, validate=False)} == {
            trajectory.trace_id: 0.5
        }


class TestOrder:
    """Corrections: the latest by the caller's clock counts, whoever wrote it."""

    @pytest.mark.parametrize("seed", range(5))
    def test_any_order_of_merging(self, tmp_path: Path, monkeypatch, seed: int):
        """Facts in several writers' files give one result, however they are spread and read."""
        rng = random.Random(seed)
        exporters = [tmp_path / f"{number}" for number in range(3)]
        facts: list[dict[str, Any]] = [
            {"reward": 0.1, "fate": "stale"},
            {"reward": 0.2, "rewards": {"a": 1.0, "b": 2.0}},
            {"advantage": 0.5},
            {"rewards": {"a": 3.0}},
            {"fate": "trained"},
        ]
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(exporters[0]))
        otel_rollout.init("p", "e", backend="file")
        with rollout_trace_attr(7, 1, 0) as trajectory:
            annotate(reward=0.0, advantage=0.0)
        for each in facts:
            otel_rollout.shutdown()
            monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(rng.choice(exporters)))
            otel_rollout.init("p", "e", backend="file")
            trajectory.annotate(**each)
        otel_rollout.shutdown()
        folder = tmp_path / "all"
        lines = [line for each in exporters if each.exists() for line in _lines(each)]
        rng.shuffle(lines)
        for number, line in enumerate(lines):
            file = tmp_path / f"{number}.jsonl"
            file.write_bytes(line)
            assert main(["import", str(file), "--into", str(folder)]) == 0
        [found] = otel_rollout.read_trajectories(folder)
        summary = found.summary
        assert (found.reward, summary.reward, summary.advantage, summary.fate) == (0.2, 0.2, 0.5, "trained")
        assert summary.reward_parts == {"a": 3.0, "b": 2.0}
        assert summary.late.keys() == {"reward", "advantage", "fate", ".a", ".b"}

    def test_facts_of_training(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The reason of a fate, and measures of the trainer, are facts of the trajectory, early or late."""
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(tmp_path / "traces"))
        otel_rollout.init("p", "e", backend="file")
        measures: dict[str, Any] = {
            "rollout.entropy": 0.5,
            "rollout.log_prob_gap": 0.25,
            "rollout.log_prob_gap_max": 2.0,
        }
        with rollout_trace_attr(7, 1, 0) as late:
            annotate(**{"rollout.entropy": 9.0})
        with rollout_trace_attr(7, 1, 1):
            annotate(fate="trained", **measures)
        more: dict[str, Any] = {"rollout.fate_reason": "5 versions", "rollout.importance_weight": 0.75}
        late.annotate(fate="stale", **measures, **more)
        otel_rollout.shutdown()
        stale, trained = [each.summary for each in otel_rollout.read_trajectories(tmp_path / "traces")]
        assert (stale.fate, stale.fate_reason, stale.importance_weight) == ("stale", "5 versions", 0.75)
        assert (trained.fate, trained.fate_reason, trained.importance_weight) == ("trained", None, None)
        for each in (stale, trained):
            assert (each.entropy, each.log_prob_gap, each.log_prob_gap_max) == (0.5, 0.25, 2.0)


def _lines(folder: Path) -> list[bytes]:
    return [b"".join([each.otlp_json(), b"\n"]) for each in otel_rollout.read_trajectories(folder)]


class TestTime:
    """What comes late isn't the trajectory's time."""

    def test_a_step_is_no_longer_for_its_judge(self, tmp_path: Path, monkeypatch, capsys):
        """Durations, stragglers and waiting are those of the rollouts, though the judge came half a minute later."""
        folder = tmp_path / "traces"
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(folder))
        otel_rollout.init("p", "e", backend="file")
        began = time.time_ns() - 30 * SECOND
        for number in range(16):
            trajectory = start_trajectory(number // 8, 1, number % 8, start_time=began)
            trajectory.record("generate", "LLM", start_time=began, end_time=began + SECOND // 20, output="42")
            trajectory.end(end_time=began + SECOND // 10)
            trajectory.annotate(reward=float(number % 2))
            trajectory.record("judge", "EVALUATOR")
        otel_rollout.shutdown()
        found = list(otel_rollout.read_trajectories(folder))
        assert {each.duration for each in found} == {0.1}
        assert {(each.summary.waiting_seconds, each.summary.reward_seconds) for each in found} == {(0.05, 0.0)}
        assert main(["ls", str(folder), "--json"]) == 0
        [step] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert step["trajectories"] == 16
        assert step["seconds"]["p99"] == pytest.approx(0.1)
        assert main(["diagnose", str(folder)]) in (0, 1)
        assert "straggler" not in capsys.readouterr().out


class TestStarted:
    """A trajectory without a `with` block."""

    def test_with_times(self, rollout_spans: InMemorySpanExporter):
        """The program's times and spans, in the order of its own."""
        start = 1_700_000_000 * SECOND
        trajectory = start_trajectory(7, 1, 0, start_time=start)
        turn = trajectory.record(
            "generate",
            "LLM",
            start_time=start + SECOND,
            end_time=start + 2 * SECOND,
            input={"messages": [{"role": "user", "content": "why"}], "model": "m"},
            output={"usage": {"prompt_tokens": 3, "completion_tokens": 4}, "content": "because"},
        )
        trajectory.record("parse", parent=turn, error="no JSON", tries=2)
        trajectory.annotate(reward=1.0)
        trajectory.end(end_time=start + 3 * SECOND)
        trajectory.end()
        assert otel_rollout.flush()
        spans = {span["name"]: span for span in rollout_spans.as_dicts()}
        root, llm, parse = spans["rollout_trace"], spans["generate"], spans["parse"]
        assert (root["start_time"], root["end_time"]) == (start, start + 3 * SECOND)
        assert (llm["start_time"], llm["end_time"]) == (start + SECOND, start + 2 * SECOND)
        assert (llm["parent_id"], parse["parent_id"]) == (root["span_id"], llm["span_id"])
        assert (root["attributes"]["rollout.turns"], root["attributes"]["rollout.output_tokens"]) == (1, 4)
        assert (root["attributes"]["rollout.reward"], root["attributes"]["rollout.status"]) == (1.0, "completed")
        assert (llm["attributes"]["gen_ai.request.model"], parse["attributes"]["tries"]) == ("m", 2)
        assert parse["status"] == "ERROR"

    def test_an_error(self, rollout_spans: InMemorySpanExporter):
        """What it failed with is the root's error."""
        start_trajectory(1, 1, 0).end(ValueError("no"))
        start_trajectory(2, 1, 0).end("the engine was gone")
        assert otel_rollout.flush()
        found = [span["attributes"]["rollout.status"] for span in rollout_spans.as_dicts()]
        assert found == ["error", "error"]
        assert {span["status"] for span in rollout_spans.as_dicts()} == {"ERROR"}

    def test_nothing_is_current(self, rollout_spans: InMemorySpanExporter):
        """Many are open at once, and none is the current one."""
        many = [start_trajectory(number, 1, 0) for number in range(3)]
        with rollout_trace_attr(9, 1, 0):
            annotate(reward=9.0)
        for number, each in enumerate(many):
            each.annotate(reward=float(number))
            each.end()
        assert otel_rollout.flush()
        rewards = {span["attributes"]["rollout.sample_index"]: span["attributes"] for span in rollout_spans.as_dicts()}
        assert {sample: each["rollout.reward"] for sample, each in rewards.items()} == {0: 0.0, 1: 1.0, 2: 2.0, 9: 9.0}

    def test_a_record_after_the_end(self, rollout_spans: InMemorySpanExporter):
        """A span that comes late is below the root."""
        trajectory = start_trajectory(1, 1, 0)
        trajectory.end()
        trajectory.record("judge", "EVALUATOR", input="a", output="b")
        assert otel_rollout.flush()
        root, judge = rollout_spans.as_dicts()
        assert (judge["name"], judge["parent_id"]) == ("judge", root["span_id"])

    def test_the_end_of_the_process(self):
        """What nobody has ended is cancelled by `shutdown`."""
        exporter = InMemorySpanExporter()
        otel_rollout.init("p", "e", backend=exporter)
        trajectory = start_trajectory(1, 1, 0)
        otel_rollout.shutdown()
        [root] = exporter.as_dicts()
        assert root["attributes"]["rollout.status"] == "cancelled"
        trajectory.end()

    def test_off(self):
        """While tracing is off, nothing happens."""
        trajectory = start_trajectory(1, 1, 0)
        assert trajectory.record("generate", "LLM") is None
        trajectory.annotate(reward=1.0)
        trajectory.end(ValueError("no"))
        assert (trajectory.trace_id, trajectory.handle) == (None, "")

    @pytest.mark.parametrize("kind", ["chat", None, 7])
    def test_no_such_kind(self, rollout_spans, caplog, kind):
        """A kind that there is not is a warning, and no exception."""
        trajectory = start_trajectory(1, 1, 0)
        trajectory.record("step", kind)
        trajectory.end()
        assert otel_rollout.flush()
        assert rollout_spans.as_dicts()[0]["attributes"]["openinference.span.kind"] == "CHAIN"
        assert "a kind is one of" in caplog.text

    def test_too_many(self, rollout_spans: InMemorySpanExporter, monkeypatch, caplog):
        """Trajectories that nobody ends are bounded: beyond that the oldest ends as cancelled, with one warning."""
        monkeypatch.setattr("otel_rollout.record.start_trajectory.MAX_OPEN", 2)
        trajectories = [start_trajectory(sample, 1, 0) for sample in range(4)]
        for trajectory in trajectories:
            trajectory.end()
        assert otel_rollout.flush()
        statuses = {
            span["attributes"]["rollout.sample_index"]: span["attributes"]["rollout.status"]
            for span in rollout_spans.as_dicts()
        }
        assert statuses == {0: "cancelled", 1: "cancelled", 2: "completed", 3: "completed"}
        assert caplog.text.count("were started and not ended") == 1

    def test_an_error_that_is_no_exception(self, rollout_spans: InMemorySpanExporter):
        """An error may be a text, from a log of another program."""
        trajectory = start_trajectory(1, 1, 0)
        trajectory.record("call", "LLM", input=["a text"], error="it timed out")
        trajectory.end()
        assert otel_rollout.flush()
        assert rollout_spans.spans[0].status.description == "it timed out"

    def test_two_tasks(self, rollout_spans: InMemorySpanExporter):
        """Tasks may record into one trajectory."""

        async def main() -> None:
            trajectory = start_trajectory(1, 1, 0)

            async def one(number: int) -> None:
                await asyncio.sleep(0)
                trajectory.record(f"call {number}", "TOOL")

            await asyncio.gather(*map(one, range(5)))
            trajectory.end()

        asyncio.run(main())
        assert otel_rollout.flush()
        root = rollout_spans.as_dicts()[-1]
        assert {span["parent_id"] for span in rollout_spans.as_dicts()[:-1]} == {root["span_id"]}


def test_the_type_is_public() -> None:
    """What is given back can be named in annotations."""
    assert isinstance(start_trajectory(), Trajectory)
