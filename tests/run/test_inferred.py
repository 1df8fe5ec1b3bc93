"""Facts that only messages show are computed when somebody asks for them, and for no more trajectories than asked."""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import read_trajectories, semconv
from otel_rollout.catalog import Run
from otel_rollout.cli.main import main
from otel_rollout.facts import INFERRED
from otel_rollout.look.findings import diagnose_run
from otel_rollout.look.view import RunState
from tests.trace_folder.recordings import make_span, trace_id_of, write_folder

STEPS, ROLLOUTS = 3, 4


def forked(step: int, rollout: int, run: int = 0) -> list[ReadableSpan]:
    """Return a trajectory of two turns whose prompts don't continue each other, and nothing says what they are."""
    trace_id = trace_id_of(step, run, rollout)
    tags = {semconv.STEP: step, semconv.SAMPLE_INDEX: 0, semconv.ROLLOUT_N: rollout, semconv.EXPERIMENT_NAME: "exp"}

    span = partial(make_span, trace_id=trace_id, run_id=f"run {run}")

    def turn(number: int, *texts: str) -> ReadableSpan:
        messages = [
            {"role": "user" if at % 2 == 0 else "assistant", "parts": [{"type": "text", "content": text}]}
            for at, text in enumerate(texts)
        ]
        attributes: dict[str, Any] = {
            semconv.SPAN_KIND: "LLM",
            **tags,
            semconv.INPUT_MESSAGES: json.dumps(messages[:-1]),
            semconv.OUTPUT_MESSAGES: json.dumps(messages[-1:]),
        }
        return span("generate", number, seconds=(number, number + 0.5), attributes=attributes)

    root = span("root", 1, parent=None, seconds=(0, 9), attributes={semconv.SPAN_KIND: "AGENT", **tags})
    return [turn(2, "Why?", f"Because {rollout}."), turn(3, "Who?", "Nobody."), root]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of three steps with four such trajectories each."""
    return write_folder(
        tmp_path / "traces", *(forked(step, rollout) for step in range(1, STEPS + 1) for rollout in range(ROLLOUTS))
    )


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The trajectories whose spans were read for their facts."""
    found: list[str] = []
    place = "otel_rollout.folder.reader.RecordedTrajectory.read_summary"
    original = pkgutil.resolve_name(place)

    def noted(trajectory: Any) -> Any:
        found.append(trajectory.trace_id)
        return original(trajectory)

    monkeypatch.setattr(place, noted)
    return found


class TestWhenAsked:
    """What asks for them, and what doesn't."""

    def test_index_has_all_other_facts(self, folder, read):
        """They equal those of the spans; steps, groups and other columns need no span."""
        run = Run([folder])
        steps = run.steps()
        listed = [each for step in steps for each in run.listed(step)]
        assert run.query("SELECT sum(turns) FROM trajectories", max_rows=1, seconds=10).rows == [(24,)]
        assert read == []
        known = {each.trace_id: each.summary for each in read_trajectories(folder)}
        for each in listed:
            for name in INFERRED:
                setattr(each, name, getattr(known[each.trace_id], name))
            assert each == known[each.trace_id]

    @pytest.mark.parametrize(
        "sql",
        [
            "SELECT step, sum(subagents), count(*) FROM trajectories GROUP BY step ORDER BY step",
            "SELECT step, subagents, trajectories FROM steps ORDER BY step",
        ],
    )
    def test_a_question_in_sql(self, folder, read, sql):
        """They are never null, nor the default, and computed once; of a step that is named, for it alone."""
        assert Run([folder]).query(sql, 1, max_rows=9, seconds=10).rows == [(1, 4, 4)]
        assert len(read) == ROLLOUTS
        for _ in range(2):
            rows = Run([folder]).query(sql, max_rows=9, seconds=10).rows
            assert rows == [(step, 4, 4) for step in range(1, STEPS + 1)]
        assert len(read) == STEPS * ROLLOUTS

    def test_pages(self, folder, read):
        """A step has those of its trajectories, a group its own, a trajectory its own."""
        run = Run([folder])
        first, second, third = run.steps()
        assert run.facts(first, ("subagents",)) == [[1]] * ROLLOUTS
        assert len(read) == ROLLOUTS
        [group] = run.groups(second)
        assert [each.subagents for each in run.rollouts(group)] == [1] * ROLLOUTS
        assert len(read) == 2 * ROLLOUTS
        [group] = run.groups(third)
        assert run.summary(group.trace_ids[0]).subagents == 1
        assert len(read) == 2 * ROLLOUTS + 1
        assert [each.conversations for each in run.summaries(third)] == [2] * ROLLOUTS

    def test_rows_of_spans_stay(self, folder, monkeypatch):
        """Rows that are kept are not read again: what is inferred changes no span, but a late span does."""
        Run([folder]).query("SELECT count(*) FROM spans", max_rows=9, seconds=10)
        with monkeypatch.context() as patched:
            patched.delattr("otel_rollout.catalog.spans.fill_step")
            assert Run([folder]).query("SELECT sum(subagents) FROM steps", max_rows=9, seconds=10).rows[0][0]
            [(before,)] = Run([folder]).query("SELECT count(*) FROM spans", max_rows=9, seconds=10).rows
        late = {semconv.REWARD: 0.5}
        write_folder(folder, [make_span("annotate", 50, trace_id_of(1, 0, 0), seconds=(20, 20), attributes=late)])
        [(after,)] = Run([folder]).query("SELECT count(*) FROM spans", max_rows=9, seconds=10).rows
        assert after == before + 1

    def test_what_changes_while_it_is_inferred(self, folder, monkeypatch):
        """Another reader lists a late reward while the messages are compared: they are compared again."""
        trace_id = trace_id_of(1, 0, 0)
        place = "otel_rollout.folder.reader.RecordedTrajectory.read_summary"
        original = pkgutil.resolve_name(place)

        def interrupted(trajectory: Any) -> Any:
            found = original(trajectory)
            if found.spans == 3:
                write_folder(
                    folder, [make_span("annotate", 50, trace_id, seconds=(20, 20), attributes={semconv.REWARD: 0.5})]
                )
                Run([folder]).steps()
            return found

        monkeypatch.setattr(place, interrupted)
        found = Run([folder]).summary(f"{trace_id:032x}")
        assert (found.subagents, found.spans, found.reward) == (1, 4, 0.5)

    def test_those_that_filters_let_through(self, folder, read):
        """No others are read."""
        trace_id = f"{trace_id_of(3, 0, 1):032x}"
        [found] = Run([folder]).read(trace_id, has_inferred=True)
        assert (found.summary.subagents, read) == (1, [trace_id])

    def test_an_export(self, folder, read, tmp_path):
        """One step has its own, and no other is read."""
        parquet = pytest.importorskip("pyarrow.parquet")
        assert main(["export", str(folder), "--to", "parquet", str(tmp_path / "tables"), "--step", "2"]) == 0
        assert len(read) == ROLLOUTS
        [file] = (tmp_path / "tables" / "trajectories").rglob("*.parquet")
        with file.open("rb") as opened:
            assert parquet.read_table(opened)["subagents"].to_pylist() == [1] * ROLLOUTS

    def test_the_folder_of_each_run(self, tmp_path, read):
        """It follows from the index alone."""
        pytest.importorskip("starlette")
        for run in range(2):
            write_folder(tmp_path / f"{run}", forked(1, 0, run))
        state = RunState([tmp_path / "0", tmp_path / "1"])
        assert len(state.steps(60)) == 2
        assert state.run_folders() == {f"run {run}": str(tmp_path / f"{run}") for run in range(2)}
        assert read == []

    def test_known_ones_cost_no_look(self, folder, monkeypatch):
        """The folder is looked at as often as if nobody asked for them, not once for each step."""
        run = Run([folder])
        run.infer()
        looks: list[Any] = []
        place = "otel_rollout.catalog.filling.find_files"
        original = pkgutil.resolve_name(place)
        monkeypatch.setattr(place, lambda *given: looks.append(given) or original(*given))
        counts = []
        for has_inferred in (False, True):
            looks.clear()
            assert len(list(run.read(has_inferred=has_inferred))) == STEPS * ROLLOUTS
            counts.append(len(looks))
        assert counts[0] == counts[1] > 0

    def test_commands(self, folder, capsys):
        """`ls --json` and `stats --json` have them, of steps and of trajectories."""
        assert main(["ls", str(folder), "--json"]) == 0
        assert [json.loads(line)["subagents"] for line in capsys.readouterr().out.splitlines()] == [4, 4, 4]
        assert main(["ls", str(folder), "--step", "2", "--json"]) == 0
        assert [json.loads(line)["subagents"] for line in capsys.readouterr().out.splitlines()] == [1, 1, 1, 1]
        assert main(["stats", str(folder), "--json"]) == 0
        assert [step["subagents"] for step in json.loads(capsys.readouterr().out)["steps"]] == [4, 4, 4]


class TestChecks:
    """A check over a run that needs them."""

    def test_looks_at_some_of_each_step(self, folder, read, monkeypatch):
        """The same ones each time, spread over the steps, and says how many."""
        monkeypatch.setattr("otel_rollout.catalog.rollout_run.MAX_INFERRED", 7)
        for _ in range(2):
            run = Run([folder])
            diagnosis = diagnose_run(run, run.steps())
            assert (diagnosis.looked_at, diagnosis.trajectories) == (7, 12)
            assert diagnosis.looked_at_note == "two_sides looked at 7 of 12 trajectories, spread over the steps"
            assert [step.looked_at for step in run.judged(run.steps())] == [3, 2, 2]
        assert len(read) == 7

    def test_looks_at_all_of_few(self, folder, read):
        """And has nothing to say of it."""
        run = Run([folder])
        diagnosis = diagnose_run(run, run.steps())
        assert (diagnosis.looked_at, diagnosis.looked_at_note, len(read)) == (12, "", 12)

    def test_more_steps_than_it_may_look_at(self, folder, monkeypatch):
        """Steps at even distances have one each."""
        monkeypatch.setattr("otel_rollout.catalog.rollout_run.MAX_INFERRED", 2)
        run = Run([folder])
        assert [step.looked_at for step in run.judged(run.steps())] == [1, 1, 0]

    def test_command(self, folder, monkeypatch, capsys):
        """`diagnose` says it in a line, and in JSON as a number."""
        pytest.importorskip("rich")
        monkeypatch.setattr("otel_rollout.catalog.rollout_run.MAX_INFERRED", 6)
        main(["diagnose", str(folder)])
        assert "two_sides looked at 6 of 12 trajectories, spread over the steps" in capsys.readouterr().out
        main(["diagnose", str(folder), "--json"])
        found = json.loads(capsys.readouterr().out)
        assert (found["looked_at"], found["trajectories"]) == (6, 12)
