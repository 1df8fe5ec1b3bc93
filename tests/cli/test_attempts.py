"""Resumed runs: each reader has one run, in which the later attempt counts."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_rollout import read_trajectories, semconv
from otel_rollout.catalog import Run
from otel_rollout.cli.main import main
from otel_rollout.counts import Loss
from otel_rollout.folder import append_losses
from tests.trace_folder.recordings import make_span, write_folder
from tests.trace_folder.training import A_DAY, ROLLOUTS, train

pytest.importorskip("rich")


@pytest.fixture
def resumed(tmp_path: Path) -> Path:
    """Return the folder of a run of steps 1 to 8 that was resumed at step 6 and came to step 10."""
    train(tmp_path, "first", range(1, 9), 1, validations=(0, 5))
    train(tmp_path, "second", range(6, 11), 2, validations=(5, 10), reward=1.0)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[list[Any], str]:
    """Return the objects that a command prints as JSON, and what it says on standard error."""
    assert main([*map(str, arguments), "--json"]) in (0, 1)
    shown = capsys.readouterr()
    return [json.loads(line) for line in shown.out.splitlines()], shown.err


def outline(steps: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return what tells steps apart, and their attempts, counts and rewards."""
    names = ("step", "validate", "run_id", "attempt", "trajectories", "reward_mean")
    return [tuple(step[name] if isinstance(step, dict) else getattr(step, name) for name in names) for step in steps]


WHOLE = sorted(
    [
        *((step, False, None, 1, ROLLOUTS, 0.0) for step in range(1, 6)),
        *((step, False, None, 2, ROLLOUTS, 1.0) for step in range(6, 11)),
        (0, True, None, 1, ROLLOUTS, 0.0),
        (5, True, None, 2, ROLLOUTS, 1.0),
        (10, True, None, 2, ROLLOUTS, 1.0),
    ]
)
NOTE = (
    "the run base was resumed: 16 trajectories of attempt 1, steps 5 to 8, left out, as a later attempt "
    "has overtaken them (--attempt 1)"
)


class TestAResumedRun:
    """A run that was killed in step 8, and resumed from a checkpoint after step 5."""

    def test_has_each_step_once(self, resumed, capsys):
        """The steps and validations from the resumed one on are the later attempt's; what is left out is said."""
        steps, said = run(capsys, "ls", resumed)
        assert outline(steps) == WHOLE
        assert NOTE in said
        assert main(["ls", str(resumed)]) == 0
        assert capsys.readouterr().out.splitlines()[0].split()[-1] == "attempt"

    @pytest.mark.parametrize("run_id", ["one", None])
    def test_with_the_run_id_continued_or_without_any(self, tmp_path, run_id, capsys):
        """Its processes tell the attempts apart."""
        train(tmp_path, run_id, range(1, 9), 1, validations=(0, 5))
        train(tmp_path, run_id, range(6, 11), 2, validations=(5, 10), reward=1.0)
        assert outline(run(capsys, "ls", tmp_path)[0]) == WHOLE

    def test_of_a_killed_process(self, tmp_path, monkeypatch):
        """The trajectories that ran when it was killed are overtaken, too."""
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(tmp_path))
        program = [sys.executable, "-m", "tests.cli.programs.train_steps"]
        assert subprocess.run([*program, "1", "8", "kill"], check=False).returncode == -signal.SIGKILL
        subprocess.run([*program, "6", "10"], check=True)
        steps = Run([tmp_path]).steps()
        assert [(each.step, each.attempt) for each in steps] == [(step, 1 + (step > 5)) for step in range(1, 11)]
        assert [(each.trajectories, each.rootless) for each in steps] == [(ROLLOUTS, 0)] * 10

    def test_killed_again_before_it_finished_anything(self, tmp_path, monkeypatch):
        """What it had begun is overtaken, too."""
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(tmp_path))
        program = [sys.executable, "-m", "tests.cli.programs.train_steps"]
        for last in ("3 kill", "3 kill at once", "4"):
            subprocess.run([*program, "1" if last == "3 kill" else "3", *last.split()], check=False)
        steps = Run([tmp_path]).steps()
        assert [(each.step, each.trajectories, each.rootless) for each in steps] == [
            (step, ROLLOUTS, 0) for step in range(1, 5)
        ]

    def test_an_attempt_alone(self, resumed, capsys):
        """With its number all of it is there, what was overtaken too."""
        steps, said = run(capsys, "ls", resumed, "--attempt", 1)
        assert [(each["step"], each["trajectories"]) for each in steps if not each["validate"]] == [
            (step, ROLLOUTS) for step in range(1, 9)
        ]
        assert said == ""
        assert {each["attempt"] for each in steps} == {1}
        assert len(run(capsys, "ls", resumed, "--attempt", 1, "--step", 7)[0]) == ROLLOUTS
        sql = "SELECT count(*) AS n FROM trajectories"
        assert run(capsys, "query", sql, resumed, "--attempt", 1)[0] == [{"n": 10 * ROLLOUTS}]
        assert run(capsys, "query", "SELECT min(step) AS n FROM steps", resumed, "--attempt", 2)[0] == [{"n": 5}]

    def test_questions_count_what_counts(self, resumed, capsys):
        """SQL has the run as lists have it, with the attempts as columns."""
        sql = "SELECT count(*) AS n, count(DISTINCT run_id) AS runs, max(attempt) AS attempts FROM trajectories"
        found, said = run(capsys, "query", sql, resumed)
        assert found == [{"n": len(WHOLE) * ROLLOUTS, "runs": 1, "attempts": 2}]
        assert NOTE in said
        sql = "SELECT process_run_id AS id, count(*) AS n FROM trajectories GROUP BY 1 ORDER BY 1"
        assert [tuple(row.values()) for row in run(capsys, "query", sql, resumed)[0]] == [("first", 24), ("second", 28)]
        assert run(capsys, "query", "SELECT count(*) AS n FROM spans WHERE step = 7", resumed)[0] == [
            {"n": 3 * ROLLOUTS}
        ]

    @pytest.mark.parametrize("run_id", ["first", "sec"])
    def test_is_found_by_the_id_of_each_attempt(self, resumed, run_id, capsys):
        """It is one run, whose id is that of its first attempt."""
        assert len(run(capsys, "ls", resumed, "--run", run_id)[0]) == len(WHOLE)
        assert len(run(capsys, "ls", resumed, "--run", run_id, "--step", 7)[0]) == ROLLOUTS
        assert len(Run([resumed], run=run_id).steps()) == len(WHOLE)
        sql = "SELECT count(*) AS n FROM trajectories"
        assert run(capsys, "query", sql, resumed, "--run", run_id)[0] == [{"n": len(WHOLE) * ROLLOUTS}]

    @pytest.mark.parametrize("run_id", ["first", "second"])
    def test_what_runs_and_what_was_lost_is_of_the_run(self, resumed, run_id):
        """The processes of the later attempt report it under the run id that they have."""
        lost = Loss("queue_full", 7, False, "base")
        append_losses(resumed, "worker", "second", {lost: 3})
        recorded = Run([resumed], run=run_id)
        [step] = recorded.judged(recorded.steps(7))
        assert step.lost == {"queue_full": 3}
        (resumed / "open").mkdir(exist_ok=True)
        trajectory = {
            **dict.fromkeys(("sample_index", "rollout_n", "op")),
            "trace_id": "f" * 32,
            "name": "rollout",
            "step": 11,
            "validate": False,
            "experiment_name": "base",
            "start_time": 1,
            "ops": 0,
        }
        running = {"beat": 2, "host": "h", "pid": 1, "open": 1, "durations": {}, "run_id": "second"}
        path = resumed / "open" / "h-1-abcd.running.json"
        path.write_text(json.dumps({**running, "trajectories": [trajectory]}))
        assert [each.step for each in recorded.live().trajectories] == [11]

    def test_an_overtaken_trajectory_is_found_by_its_id(self, resumed, capsys):
        """It is in the folder as before; a reader of the folder alone has the trajectories of all attempts."""
        of_step = list(read_trajectories(resumed, step=7))
        assert len(of_step) == 2 * ROLLOUTS
        for each in of_step:
            assert main(["show", str(resumed), "--trace", each.trace_id]) == 0
        capsys.readouterr()

    def test_is_compared_and_diagnosed_as_one(self, resumed, capsys):
        """Two experiments are two runs, however often one was resumed; no rollout is there twice."""
        train(resumed, "other", range(1, 11), 3, experiment="other", reward=1.0)
        [found], said = run(capsys, "compare", resumed, "--experiment", "base", "--experiment", "other")
        [training] = found["parts"]
        assert training["steps"] == list(range(1, 11))
        assert NOTE in said
        [diagnosis], _ = run(capsys, "diagnose", resumed)
        assert {each["check"] for each in diagnosis["findings"]}.isdisjoint({"rolled_out_again", "incomplete_groups"})
        assert diagnosis["trajectories"] == (len(WHOLE) + 10) * ROLLOUTS
        assert run(capsys, "stats", resumed)[0][0]["trajectories"] == (len(WHOLE) + 10) * ROLLOUTS

    def test_data_frames_have_what_counts(self, resumed):
        """Trajectories, and the spans that are read or kept."""
        pytest.importorskip("pyarrow")
        from otel_rollout import dataframes

        assert dataframes.trajectories(resumed, steps=range(5, 9)).num_rows == 5 * ROLLOUTS
        for _ in range(2):
            assert dataframes.spans(resumed, steps=7).num_rows == 3 * ROLLOUTS
        assert dataframes.spans(resumed, steps=7, where="kind = 'LLM'").num_rows == ROLLOUTS

    def test_an_export_is_brought_up_to_date(self, tmp_path, capsys):
        """Steps that were exported before the run was resumed are written anew."""
        parquet = pytest.importorskip("pyarrow.parquet")
        command = ["export", str(tmp_path / "run"), "--to", "parquet", str(tmp_path / "tables")]
        train(tmp_path / "run", "first", range(1, 9), 1)
        assert main(command) == 0
        train(tmp_path / "run", "second", range(6, 11), 2)
        assert main(command) == 0
        assert "5 steps written" in capsys.readouterr().out
        table = parquet.read_table(tmp_path / "tables" / "trajectories")
        ids = zip(table["step"].to_pylist(), table["process_run_id"].to_pylist(), strict=True)
        assert set(ids) == {(step, "second" if step > 5 else "first") for step in range(1, 11)}

    def test_a_step_is_the_same_whatever_was_read_before(self, tmp_path, monkeypatch):
        """A question about a step reads the others, if several attempts are in its files."""
        train(tmp_path, "first", range(95, 108), 1)
        train(tmp_path, "second", range(98, 103), 2)
        for step, attempts in ((97, [1]), (98, [2]), (102, [2]), (103, [])):
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"cache {step}"))
            recorded = Run([tmp_path])
            assert len(list(recorded.read(step=step))) == ROLLOUTS * len(attempts)
            assert [each.attempt for each in recorded.steps(step)] == attempts

    def test_an_attempt_whose_files_are_of_other_steps(self, tmp_path, monkeypatch):
        """It overtakes what comes after its steps, whatever was read before."""
        train(tmp_path, "first", range(95, 108), 1)
        train(tmp_path, "second", range(98, 100), 2)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        assert list(Run([tmp_path]).read(step=102)) == []
        assert [each.attempt for each in Run([tmp_path]).steps()] == [1, 1, 1, 2, 2]

    def test_follows_the_folder(self, tmp_path):
        """An attempt that comes overtakes, and one whose files are removed does no more."""
        train(tmp_path, "first", range(1, 9), 1)
        recorded = Run([tmp_path])
        before = outline(recorded.steps())
        files = set(tmp_path.rglob("*.zst"))
        train(tmp_path, "second", range(6, 11), 2)
        assert len(recorded.steps()) == 10
        assert [each.attempt for each in recorded.steps(7)] == [2]
        for file in set(tmp_path.rglob("*.zst")) - files:
            file.unlink()
        assert outline(recorded.steps()) == before == [(step, False, None, None, ROLLOUTS, 0.0) for step in range(1, 9)]
        assert recorded.overtaken() == []

    def test_of_several_processes_with_ids_of_their_own(self, tmp_path):
        """Those that ran at the same time are one attempt."""
        for day, steps in ((1, range(1, 9)), (2, range(6, 11))):
            for sample in range(2):
                train(tmp_path, f"{day} {sample}", steps, day, samples=[sample])
        assert [(each.attempt, each.trajectories) for each in Run([tmp_path]).steps()] == [
            (1 + (step > 5), ROLLOUTS) for step in range(1, 11)
        ]

    def test_without_numbers_of_rollouts(self, tmp_path):
        """Its steps tell the attempts apart."""
        train(tmp_path, "first", range(1, 9), 1, samples=[None])
        train(tmp_path, "second", range(6, 11), 2, samples=[None])
        assert [each.attempt for each in Run([tmp_path]).steps()] == [1] * 5 + [2] * 5


@pytest.mark.parametrize("seed", range(12))
def test_random_starts(tmp_path, seed):
    """Whatever starts follow each other, each run has the steps that plain Python keeps of it.

    Each start may have its own folder.
    """
    rng = random.Random(seed)
    folders = [tmp_path / name for name in "ab"]
    runs: list[tuple[int, dict[int, int]]] = []
    for day in range(rng.randint(2, 5)):
        first = rng.randint(1, 9)
        steps = range(first, first + rng.randint(1, 6))
        train(rng.choice(folders), f"run of day {day}", steps, day, samples=[0])
        earlier = [run for run in runs if run[0] < first]
        _, kept = earlier[-1] if earlier else (first, {})
        attempt = max(kept.values(), default=1)
        if any(step >= first for step in kept):
            attempt += 1
        for step in [step for step in kept if step >= first]:
            del kept[step]
        kept.update(dict.fromkeys(steps, attempt))
        if not earlier:
            runs.append((first, kept))
    expected = [(step, attempt) for _, kept in runs for step, attempt in kept.items()]
    resumed = {step for _, kept in runs for step in kept if max(kept.values()) > 1}
    found = Run(folders).steps()
    assert sorted((each.step, each.attempt or 1) for each in found) == sorted(expected)
    assert {each.step for each in found if each.attempt} <= resumed


class TestNoResumedRun:
    """What looks like one, and is none."""

    def outline(self, folder: Path) -> Iterator[tuple[Any, ...]]:
        """Yield the run, the number of steps and the attempts of each run."""
        found: dict[tuple[Any, Any], list[Any]] = {}
        for each in Run([folder]).steps():
            found.setdefault((each.experiment_name, each.run_id), []).append(each)
        for run_of, steps in found.items():
            yield *run_of, len(steps), {each.attempt for each in steps}

    def test_started_anew_with_the_same_run_id(self, tmp_path):
        """A run id that is given again says that it is the same run, which began again."""
        train(tmp_path, "one", range(1, 9), 1)
        train(tmp_path, "one", range(1, 5), 2)
        assert list(self.outline(tmp_path)) == [("base", None, 4, {2})]

    def test_a_resumed_one_beside_another(self, tmp_path):
        """The latest of them that began earlier goes on."""
        train(tmp_path, "first", range(1, 9), 1)
        train(tmp_path, "second", range(1, 9), 2)
        train(tmp_path, "third", range(6, 11), 3)
        assert list(self.outline(tmp_path)) == [("base", "first", 8, {None}), ("base", "second", 10, {1, 2})]
        assert len(list(Run([tmp_path], run="third").read())) == 10 * ROLLOUTS

    def test_two_experiments(self, tmp_path):
        """Each is a run of its own."""
        train(tmp_path, "first", range(1, 9), 1)
        train(tmp_path, "second", range(6, 11), 2, experiment="other")
        assert list(self.outline(tmp_path)) == [("base", None, 8, {None}), ("other", None, 5, {None})]

    def test_at_the_same_time(self, tmp_path):
        """Runs that overlap in time don't resume each other."""
        train(tmp_path, "first", range(1, 9), 1)
        train(tmp_path, "second", range(6, 11), 1)
        assert list(self.outline(tmp_path)) == [("base", "first", 8, {None}), ("base", "second", 5, {None})]

    def test_two_that_ran_at_the_same_time_are_not_resumed_together(self, tmp_path):
        """A later start goes on with neither, since nobody knows which."""
        train(tmp_path, "first", range(1, 9), 1)
        train(tmp_path, "second", range(1, 9), 1)
        train(tmp_path, "third", range(6, 11), 2)
        assert sorted(each[1:] for each in self.outline(tmp_path)) == [
            ("first", 8, {None}),
            ("second", 8, {None}),
            ("third", 5, {None}),
        ]

    def test_a_process_for_each_prompt(self, tmp_path):
        """Processes that do parts of a step one after the other are one run."""
        for day, (step, sample) in enumerate([(1, 0), (1, 1), (2, 0), (2, 1)]):
            train(tmp_path, f"{day}", [step], day, samples=[sample])
        assert list(self.outline(tmp_path)) == [("base", None, 2, {None})]

    @pytest.mark.parametrize("run_id", ["first", "second"])
    def test_prompts_that_a_later_process_has(self, tmp_path, run_id):
        """It shares the steps out, though its first one is later: nothing is there again."""
        train(tmp_path, "first", range(1, 9), 1, samples=[0])
        train(tmp_path, run_id, range(2, 9), 2, samples=[1])
        assert {each.attempt for each in Run([tmp_path]).steps()} == {None}
        assert len(list(Run([tmp_path]).read())) == 15 * 2

    @pytest.mark.parametrize("steps", [range(1, 6), range(1, 7)])
    def test_a_worker_that_does_what_a_killed_one_has_left(self, tmp_path, steps):
        """Also in a step before its last one, as in asynchronous training: what was finished counts."""
        train(tmp_path, "first", steps, 1, samples=range(3))
        train(tmp_path, "second", [5], 2, samples=[2])
        train(tmp_path, "second", range(7, 9), 2, samples=range(3))
        assert len(list(Run([tmp_path]).read(step=5))) == 4 * 2
        assert {each.attempt for each in Run([tmp_path]).steps()} == {None}

    def test_a_worker_that_does_what_is_left_without_numbers(self, tmp_path):
        """It has less of the step than the run."""
        for worker in range(5):
            train(tmp_path, f"first {worker}", range(1, 7), 1, samples=[None])
        train(tmp_path, "second", [5, 7, 8], 2, samples=[None])
        assert len(list(Run([tmp_path]).read(step=5))) == 6 * 2

    @pytest.mark.parametrize("sample", [0, None])
    def test_a_late_reward_of_a_trajectory_that_is_not_there(self, tmp_path, sample):
        """The process that gives it trains nothing."""
        train(tmp_path, "first", range(1, 9), 1, samples=[0])
        train(tmp_path, "second", range(6, 9), 2, samples=[0])
        tags = {semconv.EXPERIMENT_NAME: "base", semconv.STEP: 3, semconv.LATE: True, semconv.REWARD: 0.5}
        tags |= {} if sample is None else {semconv.SAMPLE_INDEX: sample, semconv.ROLLOUT_N: 0}
        late = make_span("annotate", 9, 1, attributes=tags, seconds=(9 * A_DAY, 9 * A_DAY + 1), run_id="rewards")
        write_folder(tmp_path, [late])
        assert [each.trajectories for each in Run([tmp_path]).steps()] == [2, 2, 3, 2, 2, 2, 2, 2]

    def test_validation_alone(self, tmp_path):
        """A checkpoint that is evaluated later overtakes nothing."""
        train(tmp_path, "first", range(1, 9), 1)
        train(tmp_path, "second", [], 2, validations=[4, 6])
        assert list(self.outline(tmp_path)) == [("base", None, 10, {None})]
