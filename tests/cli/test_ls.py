"""`otel-rollout ls` as a user meets it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from otel_rollout import semconv
from otel_rollout.cli.main import main
from otel_rollout.folder.folder_writer import FolderWriter
from otel_rollout.installing import install_line
from tests.trace_folder.recordings import (
    make_span,
    make_trajectory,
    trace_id_of,
    write_folder,
    write_frames,
    write_lines,
)

COMMAND = [sys.executable, "-m", "otel_rollout.cli"]

pytest.importorskip("rich")


@pytest.fixture
def folder(tmp_path):
    """Two steps, a validation, a trajectory that is running, and an op outside any."""
    writer = FolderWriter(tmp_path / "traces")
    for spans in (
        make_trajectory(1, 0, 0, reward=0.0),
        make_trajectory(1, 2, 0, reward=None, status="error"),
        make_trajectory(1, 0, 1, reward=1.0),
        make_trajectory(1, 10, 0, reward=0.5, status="truncated"),
        make_trajectory(2, 7, 0, validate=True),
        make_trajectory(2, "uid", 0)[:2],
        make_trajectory(None, None, None),
    ):
        writer.write(spans)
    yield tmp_path / "traces"
    writer.close()


@pytest.fixture
def on_terminal(monkeypatch):
    """Make standard output count as a terminal of 80 columns."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")


def run(capsys, *arguments):
    """Return the exit code, the words of each line printed, and what is on standard error."""
    code = main(["ls", *map(str, arguments)])
    shown = capsys.readouterr()
    plain = re.sub("\x1b\\[[0-9;]*m", "", shown.out)
    return code, [line.split() for line in plain.splitlines()], shown.err


def rows(capsys, *arguments):
    """Return the objects of `--json`."""
    assert main(["ls", *map(str, arguments), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


class TestSteps:
    """Without `--step`."""

    def test_a_row_for_each_step(self, folder, capsys):
        """Trajectories, prompts, mean reward, errors, truncated ones and what has no root, by step."""
        code, lines, error = run(capsys, folder)
        assert (code, error) == (0, "")
        assert [line[:6] for line in lines[1:]] == [
            ["1", "4", "3", "0.500", "1", "1"],
            ["2", "1", "1", "-", "0", "0"],
            ["2", "val", "1", "1", "1.000", "0"],
            ["none", "1", "0", "1.000", "0", "0"],
        ]

    def test_redacted_secrets(self, tmp_path, capsys):
        """If there are any, they have a column."""
        write_folder(tmp_path, make_trajectory(1, **{semconv.REDACTED: 77}))
        _, lines, _ = run(capsys, tmp_path)
        assert ("redacted" in lines[0], "77" in lines[1]) == (True, True)

    def test_filters_apply(self, folder, capsys):
        """A step's row counts what the filters let through, and steps without any have none."""
        assert [(row["step"], row["trajectories"]) for row in rows(capsys, folder, "--reward", "0.5..")] == [
            (1, 2),
            (2, 1),
            (None, 1),
        ]
        assert [row["step"] for row in rows(capsys, folder, "--status", "truncated")] == [1]
        assert [row["trajectories"] for row in rows(capsys, folder, "--validate")] == [1]
        assert [row["trajectories"] for row in rows(capsys, folder, "--train")] == [4, 1, 1]
        assert rows(capsys, folder, "--experiment", "other") == []


class TestTrajectories:
    """With `--step`."""

    def test_the_rollouts_of_a_prompt_stand_together(self, folder, capsys):
        """In the order of prompt and rollout, whatever the order in which they ended."""
        code, lines, _ = run(capsys, folder, "--step", 1)
        assert code == 0
        assert [line[:5] for line in lines[1:]] == [
            ["1", "0", "0", "completed", "0"],
            ["1", "0", "1", "completed", "1"],
            ["1", "2", "0", "error", "-"],
            ["1", "10", "0", "truncated", "0.5"],
        ]
        assert all(len(line[-1]) == 32 for line in lines[1:])

    def test_in_a_pipe_nothing_is_cut(self, tmp_path, capsys):
        """A long sample index stands whole in a pipe, as a program would read it."""
        sample = "dataset/train/" + "0123456789" * 6
        write_lines(tmp_path / "traces.jsonl", make_trajectory(1, sample))
        _, lines, _ = run(capsys, tmp_path, "--step", 1)
        assert lines[1][1] == sample

    def test_on_a_terminal(self, folder, capsys, on_terminal):
        """People see each prompt once, ids as short as they can be, and no line is cut in 80 columns."""
        _, lines, _ = run(capsys, folder, "--step", 1)
        assert [line[:3] for line in lines[1:]] == [
            ["0", "0", "completed"],
            ["1", "completed", "1"],
            ["2", "0", "error"],
            ["10", "0", "truncated"],
        ]
        assert all(len(line[-1]) == 8 for line in lines[1:])
        assert "…" not in str(lines)

    def test_a_step_that_is_no_number(self, tmp_path, capsys):
        """It stands beside `none`, where such trajectories are listed."""
        write_lines(tmp_path / "traces.jsonl", make_trajectory("val", 1, 0), make_trajectory(None, 2, 0))
        _, lines, _ = run(capsys, tmp_path, "--step", "none")
        assert [line[:3] for line in lines[1:]] == [["none:", "val", "1"], ["none", "2", "0"]]

    def test_one_without_a_root(self, folder, capsys):
        """A running trajectory is in its step's list."""
        _, lines, _ = run(capsys, folder, "--step", 2, "--train")
        assert lines[1][:5] == ["2", "uid", "0", "no", "root"]

    @pytest.mark.parametrize(
        ("steps", "expected"), [("1,2", 6), ("1..2", 6), ("2..", 2), ("..1", 4), ("3,4", 0), ("1", 4)]
    )
    def test_several_steps(self, folder, capsys, steps, expected):
        """Steps are given as a number, a list or a range."""
        assert len(rows(capsys, folder, "--step", steps)) == expected

    @pytest.mark.parametrize("steps", ["x", "3..1", "1,", "1..x"])
    def test_steps_that_are_none(self, folder, capsys, steps):
        """What names no step, a range that runs backwards say, is a mistake, not an empty answer."""
        with pytest.raises(SystemExit) as exit_:
            main(["ls", str(folder), "--step", steps])
        assert exit_.value.code == 2
        assert f"{steps!r} is not a step: 7, or 1,4,7, or 3..9" in capsys.readouterr().err

    def test_a_reward_below_zero(self, folder, capsys):
        """A range may begin with a minus sign."""
        assert len(rows(capsys, folder, "--step", 1, "--reward=-1..0")) == 1
        assert len(rows(capsys, folder, "--step", 1, "--reward", "-1..0")) == 1
        assert len(rows(capsys, folder, "--step", 1, "--reward", "-.5..0")) == 1

    def test_a_range_without_a_reward(self, folder, capsys):
        """The lower one comes first: one line says so."""
        with pytest.raises(SystemExit) as raised:
            main(["ls", str(folder), "--reward", "1..0"])
        assert raised.value.code == 2
        assert "'1..0' has no reward in it: the lower one comes first, 0..1" in capsys.readouterr().err


class TestSort:
    """With `--sort`."""

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            (["--sort", "reward"], [0.0, 0.5, 1.0, None]),
            (["--sort", "Reward", "--reverse"], [1.0, 0.5, 0.0, None]),
            (["--sort", "sample", "--reverse"], [0.5, None, 0.0, 1.0]),
            (["--sort", "status", "--reward", "0.."], [0.0, 1.0, 0.5]),
        ],
    )
    def test_trajectories(self, folder, capsys, options, expected):
        """By any column, the lowest first or the highest; what has no value comes last."""
        assert [row["reward"] for row in rows(capsys, folder, "--step", 1, *options)] == expected
        _, lines, _ = run(capsys, folder, "--step", 1, *options)
        assert [line[4] for line in lines[1:]] == ["-" if each is None else f"{each:g}" for each in expected]

    def test_on_a_terminal_each_row_has_its_prompt(self, folder, capsys, on_terminal):
        """Rows of a prompt don't stand together any more."""
        _, lines, _ = run(capsys, folder, "--step", 1, "--sort", "reward")
        assert [line[:2] for line in lines[1:]] == [["0", "0"], ["10", "0"], ["0", "1"], ["2", "0"]]

    def test_steps(self, folder, capsys):
        """Steps too; a name with a space has a dash."""
        found = rows(capsys, folder, "--sort", "trajectories", "--reverse")
        assert [row["trajectories"] for row in found] == [4, 1, 1, 1]
        assert [row["rootless"] for row in rows(capsys, folder, "--sort", "no-root")] == [0, 0, 0, 1]

    def test_a_group(self, folder, capsys):
        """The rollouts of a prompt are sorted within their table."""
        _, lines, _ = run(capsys, folder, "--step", 1, "--sample", 0, "--sort", "reward", "--reverse")
        assert [line[2] for line in lines[1:]] == ["1", "0"]

    def test_a_column_that_is_not_there(self, folder, capsys):
        """The message has the one that is meant, or lists them; `--reverse` alone is a mistake."""
        for name in ("on-disk", "experiment", "run"):
            assert len(rows(capsys, folder, "--sort", name)) == len(rows(capsys, folder))
        for options, said in (
            (["--sort", "rewrad"], "--sort rewrad: there is no such column; did you mean 'reward'?"),
            (["--sort", "x"], "--sort x: there is no such column; there are step, trajectories, prompts, reward, "),
            (["--step", 1, "--sort", "x"], "--sort x: there is no such column; there are step, sample, rollout, "),
            (["--reverse"], "--reverse is for --sort: name a column, such as --sort reward"),
        ):
            code, lines, error = run(capsys, folder, *options)
            assert (code, lines) == (2, [])
            assert error.startswith(f"otel-rollout ls: {said}")


class TestGroups:
    """With `--sample`."""

    @pytest.fixture
    def group(self, tmp_path):
        """Two rollouts of a prompt in two steps, with a tool that failed."""
        failed = make_span("look_up", 3, trace_id_of(1, 5, 1), attributes={semconv.SPAN_KIND: "TOOL"}, error="no")
        right, wrong = make_trajectory(1, 5, 0, payload='"42"'), make_trajectory(1, 5, 1, reward=0.0, payload='"7"')
        lines = (right, [wrong[0], failed, wrong[2]], make_trajectory(2, 5, 0), make_trajectory(1, 6, 0))
        write_lines(tmp_path / "traces.jsonl", *lines)
        return tmp_path

    def test_on_a_terminal(self, group, capsys, on_terminal):
        """The rollouts stand below their prompt, with answers, failed tools and advantages, a table for each step."""
        code, lines, error = run(capsys, group, "--sample", 5)
        assert (code, error) == (0, "")
        assert [line[:4] for line in lines if line[:1] == ["step"]] == [
            ["step", "1", "sample", "5"],
            ["step", "2", "sample", "5"],
        ]
        assert lines[1] == ["42"]
        assert [line[:3] + line[-4:-1] for line in lines[3:5]] == [
            ["0", "completed", "0", "42", "1", "+1.00"],
            ["1", "completed", "1", "7", "0", "-1.00"],
        ]

    def test_in_a_pipe(self, group, capsys):
        """Programs get one table, with each tag in each row."""
        _, lines, _ = run(capsys, group, "--sample", 5, "--step", 1)
        assert [(line[:4], line[7], line[9:11]) for line in lines[1:]] == [
            (["1", "5", "0", "completed"], "1.00", ["42", "1"]),
            (["1", "5", "1", "completed"], "1.00", ["7", "0"]),
        ]
        assert all(len(line[-1]) == 32 for line in lines[1:])

    def test_json(self, group, capsys):
        """Each rollout is an object, as with `--step`, with the attributes of its root."""
        found = rows(capsys, group, "--sample", 5)
        assert [(row["step"], row["attributes"]["rollout.turns"]) for row in found] == [(1, 1), (1, 1), (2, 1)]

    def test_one_that_is_damaged(self, folder, capsys):
        """Its row has what the index says; the file is named on standard error."""
        [path] = folder.glob("steps=000000-000099/*.otlp.zst")
        data = bytearray(path.read_bytes())
        data[len(data) // 8] ^= 0xFF
        path.write_bytes(data)
        code, lines, error = run(capsys, folder, "--step", 1, "--sample", 0)
        assert (code, len(lines)) == (0, 3)
        assert "is damaged" in error


class TestExperiments:
    """A folder with several."""

    @pytest.fixture
    def several(self, tmp_path):
        """Two experiments with the same step, the first run twice."""
        again = make_trajectory(1, 0, 0, experiment="a", run_id="second", start=1)
        lines = (make_trajectory(1, 0, 0, experiment="a"), again, make_trajectory(1, 1, 0, experiment="b"))
        write_lines(tmp_path / "traces.jsonl", *lines)
        return tmp_path

    def test_are_not_merged(self, several, capsys):
        """Each experiment has a row for the step; so has each run that has the same rollouts."""
        found = [(row["experiment_name"], row["run_id"], row["trajectories"]) for row in rows(capsys, several)]
        assert found == [("a", "run", 1), ("a", "second", 1), ("b", None, 1)]

    def test_processes_of_one_run_are(self, tmp_path, capsys):
        """Processes without a common run id are one run if no two of them have the same rollout."""
        write_lines(tmp_path / "traces.jsonl", make_trajectory(1, 0, 0), make_trajectory(1, 0, 1, run_id="second"))
        assert [(row["run_id"], row["trajectories"]) for row in rows(capsys, tmp_path)] == [(None, 2)]

    def test_are_told_apart_in_a_prompt(self, tmp_path, capsys, on_terminal):
        """A prompt whose rollouts have no number is listed by run, as the step's other prompts are told apart."""
        for at, run_id in enumerate(("run", "second")):
            made = [make_trajectory(1, *tags, run_id=run_id, start=at) for tags in ((0, None), (5, 0))]
            write_lines(tmp_path / "traces.jsonl", *made)
        _, lines, error = run(capsys, tmp_path, "--step", 1, "--sample", 0)
        assert [" ".join(line) for line in lines if "prompt" in line] == [
            "step 1 sample 0 run run 1 rollout of one prompt",
            "step 1 sample 0 run second 1 rollout of one prompt",
        ]
        assert error == ""

    def test_that_nothing_tells_apart_are_said(self, tmp_path, capsys):
        """Rollouts of one prompt without numbers may be of one run's processes, or of two runs: a line says so."""
        write_lines(
            tmp_path / "traces.jsonl", *(make_trajectory(1, 0, None, run_id=run_id) for run_id in ("run", "second"))
        )
        _, _, error = run(capsys, tmp_path, "--step", 1, "--sample", 0)
        assert error.startswith("rollouts of one prompt, without rollout_n, are of 2 run ids, ")
        assert "--run takes one" in error
        assert run(capsys, tmp_path, "--step", 1, "--sample", 0, "--run", "sec")[2] == ""

    def test_are_named(self, several, capsys, on_terminal):
        """On a terminal there is a column for them."""
        _, lines, _ = run(capsys, several)
        assert lines[0][-2:] == ["experiment", "run"]
        assert [line[-2:] for line in lines[1:]] == [["a", "run"], ["a", "second"], ["b", "-"]]

    def test_a_run_by_the_beginning_of_its_id(self, several, capsys):
        """`--run` takes one run's trajectories."""
        assert [row["run_id"] for row in rows(capsys, several, "--step", 1, "--run", "sec")] == ["second"]
        assert [row["trajectories"] for row in rows(capsys, several, "--run", "run")] == [1, 1]
        _, _, error = run(capsys, several, "--experiment", "a", "--run", "x")
        assert error == f"no trajectory in {several} matches: its runs are run, second\n"

    def test_one_that_is_not_there(self, several, capsys):
        """The message names those that are."""
        _, _, error = run(capsys, several, "--experiment", "c")
        assert error == f"no trajectory in {several} matches: its experiments are a, b\n"


class TestStepThatIsNotThere:
    """What `ls --step` says of a step that no trajectory has."""

    @pytest.mark.parametrize("asked", ["7", "7..9", "7,8", "none"])
    def test_the_steps_are_named(self, tmp_path, capsys, asked):
        """The message names the steps that there are, those of validation too."""
        write_frames(tmp_path / "steps=000000-000099" / "node-1-0001.otlp.zst", make_trajectory(1, 0, 0))
        write_frames(tmp_path / "validate" / "steps=000000-000099" / "node-1-0001.otlp.zst", make_trajectory(2, 0, 0))
        _, _, error = run(capsys, tmp_path, "--step", asked)
        assert error == f"no trajectory in {tmp_path} matches; there are steps 1, 2\n"

    def test_a_step_that_is_there_is_not_blamed(self, tmp_path, capsys):
        """If another filter is what nothing matches, no steps are named."""
        write_frames(tmp_path / "steps=000000-000099" / "node-1-0001.otlp.zst", make_trajectory(1, 0, 0))
        _, _, error = run(capsys, tmp_path, "--step", "1", "--sample", "9")
        assert error == f"no trajectory in {tmp_path} matches\n"


class TestNarrowTerminals:
    """What gives way on 60 columns."""

    @pytest.mark.parametrize("arguments", [[], ["--step", 1], ["--sample", 0]])
    def test_no_number_is_cut(self, folder, capsys, monkeypatch, on_terminal, arguments):
        """Columns are left out; those that stay are whole."""
        monkeypatch.setenv("COLUMNS", "60")
        assert main(["ls", *map(str, [folder, *arguments])]) == 0
        shown = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
        assert max(map(len, shown.splitlines())) <= 60
        assert "…" not in shown
        assert "reward" in shown


class TestForeignTraces:
    """What another tool has written has other types under our names."""

    @pytest.fixture
    def foreign(self, tmp_path):
        """Samples by name, by a number with a fraction and by whole number; an experiment and a status by number."""
        write_lines(
            tmp_path / "traces.jsonl",
            make_trajectory(1, 1.5, 0),
            make_trajectory(1, "uid", 0),
            make_trajectory(1, 2, 0, experiment=7),
            make_trajectory(1, 3, "a", status=4),
        )
        return tmp_path

    def test_are_listed(self, foreign, capsys):
        """Each is listed: numbers by value, then texts."""
        code, lines, error = run(capsys, foreign, "--step", 1)
        assert (code, error) == (0, "")
        assert sorted(line[1] for line in lines[1:]) == ["1.5", "2", "3", "uid"]
        assert "4" in next(line for line in lines if line[1] == "3")

    def test_stand_in_order_of_number_and_text(self, tmp_path, capsys):
        """A fraction stands between whole numbers, a text behind them."""
        write_lines(tmp_path / "traces.jsonl", *(make_trajectory(1, sample) for sample in ("uid", 2, 1.5, 1)))
        _, lines, _ = run(capsys, tmp_path, "--step", 1)
        assert [line[1] for line in lines[1:]] == ["1", "1.5", "2", "uid"]

    def test_are_shown(self, foreign, capsys):
        """One with a status, or an experiment, by number has it in its heading."""
        assert main(["show", str(foreign), "--sample", "3"]) == 0
        assert capsys.readouterr().out.splitlines()[0] == "step 1  sample 3  rollout a  4  reward 1"
        assert main(["show", str(foreign), "--sample", "2"]) == 0
        assert capsys.readouterr().out.splitlines()[3] == "project / 7 / run"


class TestTrouble:
    """What can go wrong."""

    def test_a_file(self, folder, tmp_path, capsys):
        """A file of OTLP JSON is listed alone, under any name, as is one of a trace folder's."""
        write_lines(tmp_path / "otlp.json", make_trajectory(3, 1))
        write_lines(tmp_path / "other.jsonl", make_trajectory(4, 1))
        code, lines, error = run(capsys, tmp_path / "otlp.json")
        assert (code, error) == (0, "")
        assert [line[:2] for line in lines[1:]] == [["3", "1"]]
        (frames,) = (folder / "steps=000000-000099").glob("*.otlp.zst")
        assert [row["trajectories"] for row in rows(capsys, frames)] == [4]
        assert [row["sample_index"] for row in rows(capsys, frames, "--step", "1")] == [0, 2, 0, 10]

    def test_a_file_without_traces(self, tmp_path, capsys):
        """It is named, and nothing is listed."""
        (tmp_path / "train.log").write_text("step 1\nstep 2\n")
        code, lines, error = run(capsys, tmp_path / "train.log")
        assert (code, lines) == (0, [])
        assert f"1 file without OTLP skipped in {tmp_path / 'train.log'}" in error

    def test_a_device(self, capsys):
        """What may have no end is not read."""
        code, lines, error = run(capsys, "/dev/zero")
        assert (code, lines) == (2, [])
        assert error == "otel-rollout ls: /dev/zero is neither a folder nor a file\n"

    def test_the_folder_of_the_environment(self, folder, capsys, monkeypatch):
        """Without an argument the folder is the one that the exporter writes to."""
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(folder))
        assert len(rows(capsys)) == 4

    def test_a_torn_frame_is_told(self, folder, capsys):
        """What could not be read is said on standard error, and the rest is shown."""
        [path] = folder.glob("no-step/*.otlp.zst")
        other = path.with_name("host-1-abcd.otlp.zst")
        other.write_bytes(path.read_bytes()[:-10])
        code, lines, error = run(capsys, folder)
        assert (code, len(lines)) == (0, 5)
        assert error == f"1 torn frame skipped in {other}\n"

    @pytest.mark.parametrize(
        "arguments",
        [["--step", "x"], ["--step", "1-2"], ["--reward", ".."], ["--reward", "nan"], ["--status", "fine"]],
    )
    def test_a_wrong_filter_is_a_usage_error(self, folder, capsys, arguments):
        """The exit code is 2 and the message names the value."""
        with pytest.raises(SystemExit) as ended:
            main(["ls", str(folder), *arguments])
        assert ended.value.code == 2
        assert arguments[1] in capsys.readouterr().err

    def test_names_can_not_draw_on_the_terminal(self, tmp_path, capsys, on_terminal):
        """What a terminal would act on in a tag is replaced; markup is shown as it is."""
        write_folder(tmp_path, make_trajectory(1, "\x1b[2J[red]\x9b"))
        main(["ls", str(tmp_path), "--step", "1"])
        assert "�[2J[red]�" in re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
        [row] = rows(capsys, tmp_path, "--step", 1)
        assert row["sample_index"] == "\x1b[2J[red]\x9b"
        main(["ls", str(tmp_path), "--step", "1", "--json"])
        assert capsys.readouterr().out.rstrip("\n").isprintable()

    def test_a_reader_that_leaves(self, tmp_path):
        """`otel-rollout ls | head` ends quietly when the reader has seen enough."""
        write_folder(tmp_path, *(make_trajectory(1, sample) for sample in range(900)))
        for arguments in (["--json"], []):
            listing = subprocess.Popen(
                [*COMMAND, "ls", str(tmp_path), "--step", "1", *arguments],
                # A buffer here would take all that fits into the pipe: 128 KiB in Python 3.14, more than the table has.
                bufsize=0,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Unbuffered, Python takes half a write for a whole one.
                env={**os.environ, "PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": ""},
            )
            assert listing.stdout is not None
            assert listing.stdout.readline()
            listing.stdout.close()
            _, error = listing.communicate(timeout=300)
            assert (listing.returncode, error) == (141, b"")

    def test_without_rich(self, folder, capsys, monkeypatch):
        """The table needs an extra, which is named; JSON needs none."""
        monkeypatch.setitem(sys.modules, "rich", None)
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        code, _, error = run(capsys, folder)
        assert code == 2
        assert install_line("cli") in error
        assert len(rows(capsys, folder)) == 4
