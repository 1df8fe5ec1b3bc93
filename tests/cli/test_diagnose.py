"""`otel-rollout diagnose` as a user meets it: what it prints, and its exit code."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
from itertools import product
from pathlib import Path

import pytest

from otel_rollout import semconv
from otel_rollout.catalog import Run
from otel_rollout.cli.main import main
from otel_rollout.folder.folder_writer import FolderWriter
from otel_rollout.look.findings import diagnose_run
from tests.trace_folder.recordings import make_span, make_trajectory, trace_id_of, write_folder, write_frames

pytest.importorskip("rich")

from rich.console import Console

from otel_rollout.look.terminal import print_diagnosis

EVIL = "\x1b[31mrm -rf\u202e</script>"


def write_steps(folder: Path, steps: int = 2, truncated: int = 2, tool: str = "search") -> Path:
    """Write steps of 8 prompts with 4 rollouts; some are truncated in each step, and a tool fails in the second."""
    made = [
        make_trajectory(
            step,
            sample,
            rollout,
            reward=float(rollout % 2),
            status="truncated" if rollout < truncated else "completed",
            payload=json.dumps(f"{step} {sample} {rollout}"),
        )
        for step, sample, rollout in product(range(1, steps + 1), range(8), range(4))
    ]
    return write_folder(folder, *(with_tool(each, tool, fails=number >= 32) for number, each in enumerate(made)))


def write_collapse(folder: Path, run_id: str, steps: int) -> None:
    """Write steps of a run whose rollouts say the same from the fourth on."""
    write_folder(
        folder,
        *(
            make_trajectory(
                *(step, sample, n),
                reward=float(n % 2),
                payload=json.dumps(f"{sample} {n if step < 4 else 0}"),
                run_id=run_id,
            )
            for step, sample, n in product(range(1, steps + 1), range(8), range(4))
        ),
    )


def with_tool(spans, name, *, fails):
    """Add a call of a tool to a trajectory."""
    trace_id = spans[0].context.trace_id
    attributes = {semconv.SPAN_KIND: "TOOL", semconv.TOOL_NAME: name, semconv.ERROR_TYPE: "ToolError"}
    call = make_span("execute", 9, trace_id, seconds=(0.9, 0.95), attributes=attributes, error="no" if fails else None)
    return [*spans[:-1], call, spans[-1]]


def diagnose(capsys, *arguments: str | Path) -> tuple[int, str, str]:
    code = main(["diagnose", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


class TestExitCode:
    """The exit code."""

    def test_is_1_with_a_finding(self, capsys, tmp_path):
        """Something is above its threshold."""
        code, out, _ = diagnose(capsys, write_steps(tmp_path))
        assert code == 1
        assert "warning  truncated  50%, threshold 15%" in out

    def test_is_0_without_one(self, capsys, tmp_path):
        """Nothing is above its threshold."""
        code, out, _ = diagnose(capsys, write_steps(tmp_path, steps=1, truncated=0))
        assert (code, "nothing above its threshold" in out) == (0, True)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                ["--threshold", "truncatd=0.1"],
                "--threshold: there is no check 'truncatd'; did you mean 'truncated'? The checks are",
            ),
            (["--threshold", "x=0.1"], "there is no check 'x'; the checks are lost_spans, rootless, "),
            (["--threshold", "truncated=5"], "--threshold truncated=5: this is a share, from 0 to 1"),
            (["--step", "99"], "matches --step; there is step 1"),
            (["--step", "3..9"], "matches --step; there is step 1"),
            (["--against", "99"], "matches --against; there is step 1"),
            (["--against", "1"], "--against 1: this is the step itself"),
            (["--against", "/nonexistent"], "there is no trace folder /nonexistent; name one step, or a trace folder"),
            (["--against", "2..3"], "there is no trace folder 2..3; name one step, or a trace folder"),
        ],
    )
    def test_is_2_if_the_command_line_is_wrong(self, capsys, tmp_path, arguments, message):
        """One line says what is wrong."""
        code, out, err = diagnose(capsys, write_steps(tmp_path, steps=1), *arguments)
        assert (code, out) == (2, "")
        assert message in err

    @pytest.mark.parametrize("value", ["truncated", "truncated=much", "truncated=-1", "truncated=nan"])
    def test_is_2_if_a_threshold_is_no_number(self, capsys, tmp_path, value):
        """The usage is printed."""
        with pytest.raises(SystemExit) as raised:
            diagnose(capsys, tmp_path, "--threshold", value)
        assert raised.value.code == 2


class TestText:
    """What is printed."""

    def test_evidence_is_a_command_that_works(self, capsys, tmp_path):
        """Each command shows a trajectory that has the fault."""
        _, out, _ = diagnose(capsys, write_steps(tmp_path), "--step", "1")
        commands = [line.strip() for line in out.splitlines() if "otel-rollout show" in line]
        addresses = [line.strip() for line in out.splitlines() if "in view:" in line]
        assert (len(commands), len(addresses)) == (5, 5)
        assert addresses[0].startswith("in view: #/step/1/sample/")
        assert main(shlex.split(commands[0])[1:]) == 0
        assert "truncated" in capsys.readouterr().out

    def test_says_what_too_few_trajectories_hint_at(self, capsys, tmp_path):
        """A small step whose trajectories all fail is no finding, and isn't called healthy in silence."""
        failed = [make_trajectory(1, sample, status="truncated") for sample in range(8)]
        write_frames(tmp_path / "steps=000000-000099" / "node-1-0001.otlp.zst", *failed)
        code, out, _ = diagnose(capsys, tmp_path)
        assert (code, "too few to tell: truncated 100%, of 8 (it needs 16)" in out) == (0, True)

    def test_steps_that_are_compared_are_no_list(self, capsys, tmp_path):
        """A finding over steps names the first and the last of them."""
        for step in range(1, 5):
            same = [
                make_trajectory(step, sample, rollout, payload=json.dumps("x" if step > 2 else f"{sample} {rollout}"))
                for sample in range(8)
                for rollout in range(4)
            ]
            write_frames(tmp_path / f"step={step:06d}" / "node-1-0001.otlp.zst", *same)
        _, out, _ = diagnose(capsys, tmp_path)
        assert "from step 1 to 4: rollouts that repeat an earlier one" in out

    @pytest.mark.parametrize("width", [72, 80])
    def test_fits_a_terminal(self, tmp_path, width):
        """Nothing is wider than it."""
        run = Run([write_steps(tmp_path)])
        steps = run.steps()
        console = Console(width=width, force_terminal=True, color_system=None, file=io.StringIO())
        print_diagnosis(console, diagnose_run(run, steps))
        lines = console.file.getvalue().splitlines()
        assert max(map(len, lines)) <= width
        assert sum("otel-rollout show" in line for line in lines) == 10

    def test_has_no_control_characters(self, capsys, tmp_path):
        """The name of a tool that a model wrote moves no cursor and turns no text around."""
        _, out, _ = diagnose(capsys, write_steps(tmp_path, tool=EVIL), "--step", "2")
        assert "tool errors" in out
        assert "\x1b" not in out
        assert "\u202e" not in out


class TestSelection:
    """Steps and thresholds."""

    def test_of_a_step(self, capsys, tmp_path):
        """Only that step is looked at."""
        _, out, _ = diagnose(capsys, write_steps(tmp_path), "--step", "1")
        assert "tool errors" not in out

    def test_of_thresholds(self, capsys, tmp_path):
        """A higher one silences a finding."""
        folder = write_steps(tmp_path, steps=1)
        assert diagnose(capsys, folder, "--threshold", "truncated=0.5")[0] == 0

    def test_running_trajectories_are_not_lost(self, capsys, tmp_path):
        """They have no root yet, in any step that a living process works on; once it is dead they are a finding."""
        writer = FolderWriter(tmp_path)
        for step in (1, 2, 3):
            for rollout in range(4):
                spans = make_trajectory(step, 1, rollout)
                writer.write(spans[:1] if rollout == 0 else spans)
        assert diagnose(capsys, tmp_path)[0] == 0
        writer._files.close()
        writer._journal.forget()
        code, out, _ = diagnose(capsys, tmp_path)
        assert (code, "steps 1 to 3: 3 of 12 trajectories have no root" in out) == (1, True)

    def test_one_experiment_or_run(self, capsys, tmp_path):
        """The steps of one are checked alone; if it is not there, the error names those that are."""
        folder = write_steps(tmp_path)
        whole = diagnose(capsys, folder)
        assert diagnose(capsys, folder, "--experiment", "exp") == diagnose(capsys, folder, "--run", "r") == whole
        for option, named in (("--experiment", "its experiments are exp"), ("--run", "its runs are run")):
            code, _, error = diagnose(capsys, folder, option, "other")
            assert (code, error) == (2, f"otel-rollout diagnose: no trajectory in {folder} matches: {named}\n")

    def test_trajectories_without_a_step(self, capsys, tmp_path):
        """`--step none` checks them."""
        write_frames(tmp_path / "no-step" / "node-1-0001.otlp.zst", make_trajectory(None, 1, 0))
        code, out, _ = diagnose(capsys, tmp_path, "--step", "none")
        assert (code, out.splitlines()[0].split()[:4]) == (0, ["1", "step", "1", "trajectory"])

    def test_against_a_step(self, capsys, tmp_path):
        """Each finding has the value of that step."""
        _, out, _ = diagnose(capsys, write_steps(tmp_path), "--step", "2", "--against", "1")
        assert re.search(r"^mean reward \d\.\d+ before, \d\.\d+ now, of 32 and 32 trajectories$", out, re.MULTILINE)
        assert "truncated  50%, threshold 15%, before 50%" in out
        assert "tool errors: search  100%, threshold 25%, before 0%" in out

    def test_against_a_folder(self, capsys, tmp_path):
        """What the other folder had, and this one has not, is told."""
        other, this = write_steps(tmp_path / "other", steps=2), write_steps(tmp_path / "this", steps=2, truncated=0)
        _, out, _ = diagnose(capsys, this, "--against", other)
        assert "no longer above its threshold\n  truncated (50%, threshold 15%)" in out

    def test_against_a_copy(self, capsys, tmp_path):
        """Steps that are the same in both folders are compared too; nothing of them is gone."""
        this = write_steps(tmp_path / "this", steps=2)
        shutil.copytree(this, tmp_path / "copy")
        code, out, _ = diagnose(capsys, this, "--against", tmp_path / "copy")
        assert (code, out.splitlines()[0].split()[:2]) == (1, ["2", "steps"])
        assert "threshold 15%, before 50%" in out
        assert "no longer above" not in out

    def test_against_itself(self, capsys, tmp_path):
        """A folder is not compared with itself."""
        this = write_steps(tmp_path, steps=2)
        code, out, err = diagnose(capsys, this, "--against", this)
        assert (code, out) == (2, "")
        assert f"--against {this}: this is the folder itself; name another one, or a step" in err

    def test_runs_of_one_experiment_are_apart(self, capsys, tmp_path):
        """A shorter second run of an experiment in the folder hides no finding over the steps of the first."""
        write_collapse(tmp_path, "long", 5)
        write_collapse(tmp_path, "short", 2)
        code, out, _ = diagnose(capsys, tmp_path, "--json")
        found = [each for each in json.loads(out)["findings"] if each["check"] == "mode_collapse"]
        assert code == 1
        assert [(each["run_id"], each["steps"]) for each in found] == [("long", [1, 5])]


class TestJson:
    """The JSON."""

    def test_has_these_names(self, capsys, tmp_path):
        """One object has everything that the text has."""
        code, out, _ = diagnose(capsys, write_steps(tmp_path, tool=EVIL), "--json", "--against", "1")
        found = json.loads(out)
        assert code == 1
        assert out.count("\n") == 1
        assert "\u202e" not in out
        assert set(found) == {
            "failures",
            "findings",
            "folder",
            "gone",
            "steps",
            "thresholds",
            "blames",
            "too_few",
            "trajectories",
            "looked_at",
            "unknown_share",
        }
        finding = next(each for each in found["findings"] if each["check"] == "tool_errors")
        assert set(finding) == {
            "advice",
            "before",
            "check",
            "compares_steps",
            "evidence",
            "experiment_name",
            "meaning",
            "measured",
            "number",
            "onset",
            "run_id",
            "severity",
            "share",
            "steps",
            "subject",
            "threshold",
            "title",
            "total",
            "validate",
            "value",
        }
        assert finding["subject"] == EVIL
        evidence = finding["evidence"][0]
        assert evidence["trace_id"] == f"{trace_id_of(2, evidence['sample_index'], evidence['rollout_n']):032x}"
        assert set(evidence) == {
            "address",
            "command",
            "rollout_n",
            "sample_index",
            "step",
            "trace_id",
            "validate",
        }


class TestARunThatIsWritten:
    """A folder that a process writes."""

    def test_its_last_step_waits_for_rewards(self, capsys, tmp_path):
        """Trajectories that have ended may get their reward yet; once the process is gone they won't."""
        writer = FolderWriter(tmp_path)
        for step, reward in ((1, 1.0), (2, None)):
            for number in range(16):
                writer.write(make_trajectory(step, number, 0, reward=None if reward is None else float(number % 2)))
        assert "missing rewards" not in diagnose(capsys, tmp_path)[1]
        writer.close()
        assert "missing rewards" in diagnose(capsys, tmp_path)[1]

    def test_another_run_of_the_folder_is_not_spared(self, capsys, tmp_path):
        """The last step of a run that has ended is looked at while another run is being written."""
        first = FolderWriter(tmp_path)
        for step in (1, 2):
            for number in range(16):
                reward = None if step == 2 else float(number % 2)
                first.write(make_trajectory(step, number, 0, reward=reward, experiment="first"))
        first.close()
        writer = FolderWriter(tmp_path)
        writer.write(make_trajectory(3, 0, 0, experiment="second"))
        assert "missing rewards" in diagnose(capsys, tmp_path)[1]
        writer.close()
