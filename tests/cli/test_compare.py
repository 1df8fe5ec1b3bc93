"""`otel-rollout compare` as a user meets it: what it prints, its exit code, its page."""

from __future__ import annotations

import json
import random
import re
from itertools import product
from pathlib import Path

import pytest

from otel_rollout.cli.main import main
from otel_rollout.folder.folder_writer import FolderWriter
from tests.trace_folder.recordings import make_trajectory, write_folder

pytest.importorskip("rich")

EVIL = "\x1b[31m<script>alert(1)</script>\u202e"


def write_run(
    folder: Path,
    seed: int,
    *,
    steps: int = 6,
    prompts: int = 12,
    lost: int = 0,
    experiment: str = "exp",
    validate: bool = False,
) -> Path:
    """Write steps of prompts with 4 rollouts; the first `lost` prompts are never solved."""
    rng = random.Random(seed)
    return write_folder(
        folder,
        *(
            make_trajectory(
                *(step, sample, rollout),
                reward=float(sample >= lost and rng.random() < (0.9 if rollout else 0.5)),
                experiment=experiment,
                validate=validate,
                payload=json.dumps(f"{sample} {EVIL}"),
                of=f"{seed}",
            )
            for step, sample, rollout in product(range(1, steps + 1), range(prompts), range(4))
        ),
    )


def compare(capsys, *arguments: str | Path) -> tuple[int, str, str]:
    code = main(["compare", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[Path, Path, Path]:
    """A run, an equal one of another seed, and one that solves nine prompts of twelve no more."""
    folder = tmp_path_factory.mktemp("runs")
    made = [write_run(folder / name, seed, lost=lost) for name, seed, lost in [("a", 1, 0), ("b", 2, 0), ("c", 3, 9)]]
    return made[0], made[1], made[2]


class TestExitCode:
    """The exit code."""

    def test_is_0_for_equal_runs(self, capsys, runs):
        """Another seed is not shown to be worse; the last line has what was compared."""
        code, out, _ = compare(capsys, runs[0], runs[1])
        assert code == 0
        verdict = re.fullmatch(
            r"B is not shown to be worse; (\d+) figures compared; reward changes by (\S+) to (\S+) \(95%\)",
            out.splitlines()[-1],
        )
        assert verdict is not None
        figures, low, high = map(float, verdict.groups())
        assert figures > 8
        assert low < 0 < high

    def test_is_0_if_everything_is_too_small(self, capsys, tmp_path):
        """The last line doesn't say that B is no worse."""
        small = [write_run(tmp_path / name, seed, steps=1, prompts=3) for seed, name in enumerate("ab")]
        code, out, _ = compare(capsys, *small)
        assert (code, out.splitlines()[-1]) == (0, "too few to tell if B is worse")
        code, out, _ = compare(capsys, *small, "--figure", "reward")
        assert (code, out.splitlines()[-1]) == (0, "too few to tell if B is worse")
        assert "too few to tell: fewer than 8 prompts: reward\n" in out

    def test_is_1_for_a_worse_run(self, capsys, runs):
        """The last line has the reasons."""
        code, out, _ = compare(capsys, runs[0], runs[2])
        assert code == 1
        assert out.splitlines()[-1].startswith("B is worse: reward")

    def test_is_0_for_a_better_run(self, capsys, runs):
        """The last line names what is better."""
        code, out, _ = compare(capsys, runs[2], runs[0])
        assert code == 0
        assert out.splitlines()[-1].startswith("B is not shown to be worse; ")
        assert "; better: reward, " in out.splitlines()[-1]

    def test_is_0_if_another_figure_is_worse(self, capsys, runs):
        """`--figure` names those that decide."""
        assert compare(capsys, runs[0], runs[2], "--figure", "turns", "--figure", "output_tokens")[0] == 0
        assert compare(capsys, runs[0], runs[2], "--figure", "solved")[0] == 1

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["a"], "a has one run: exp; name another folder, or two of --experiment or --run"),
            (["a", "a"], "A and B are both"),
            (["a", "none"], "there is no trace folder"),
            (["a", "b", "--step", "99"], "matches --step; there are steps 1, 2, 3, 4, 5, 6"),
            (["a", "b", "--experiment", "other"], "no trajectory of"),
            (["a", "b", *["--run", "x"] * 3], "--run is given 3 times; there are two runs"),
            (["a", "b", "--figure", "rewad"], "there is no figure 'rewad' in both runs; did you mean 'reward'?"),
        ],
    )
    def test_is_2_if_the_command_line_is_wrong(self, capsys, monkeypatch, runs, arguments, message):
        """One line says what is wrong."""
        monkeypatch.chdir(runs[0].parent)
        code, out, err = compare(capsys, *arguments)
        assert (code, out) == (2, "")
        assert message in err

    @pytest.mark.parametrize("value", ["-1", "2", "nan", "much"])
    def test_is_2_if_the_margin_is_no_share(self, capsys, runs, value):
        """The usage is printed."""
        with pytest.raises(SystemExit) as raised:
            compare(capsys, runs[0], runs[1], f"--margin={value}")
        assert raised.value.code == 2

    def test_is_2_without_a_step_in_common(self, capsys, tmp_path):
        """Training and validation have none; `--all-steps` is named."""
        first = write_run(tmp_path / "a", 1, steps=1)
        second = write_run(tmp_path / "b", 2, steps=1, validate=True)
        code, _, err = compare(capsys, first, second)
        assert (code, "have no step in common; --all-steps" in err) == (2, True)


class TestARunThatIsWritten:
    """A run whose process still writes its last step."""

    def test_its_open_step_is_not_compared(self, capsys, tmp_path):
        """The rollouts that are there of it are left out on both sides, with a line that says so."""
        before, after = write_run(tmp_path / "a", 1), write_run(tmp_path / "b", 2)
        write_folder(before, *(make_trajectory(7, n, n % 2) for n in range(16)))
        writer = FolderWriter(after)
        for number in range(3):
            writer.write(make_trajectory(7, number, 0, reward=0.0))
        code, out, _ = compare(capsys, before, after)
        assert code == 0
        assert "not compared, as it is being written: step 7 of B" in out
        assert "6 steps (1 to 6)" in out
        assert json.loads(compare(capsys, before, after, "--json")[1])["left_out"] == ["step 7 of B"]
        writer.close()
        assert "7 steps (1 to 7)" in compare(capsys, before, after)[1]


class TestOneFolder:
    """Two runs of one folder."""

    def test_are_compared_if_there_are_just_two(self, capsys, tmp_path):
        """No option is needed."""
        write_run(tmp_path, 1, experiment="old")
        write_run(tmp_path, 2, experiment="new", lost=9)
        code, out, _ = compare(capsys, tmp_path)
        assert code == 1 if " · old" in out.splitlines()[0] else code == 0

    def test_are_chosen_by_their_experiments(self, capsys, tmp_path):
        """The first `--experiment` is that of A, the second that of B."""
        for seed, name in enumerate(("one", "two", "three"), 1):
            write_run(tmp_path, seed, experiment=name, steps=2)
        code, out, _ = compare(capsys, tmp_path, "--experiment", "three", "--experiment", "one")
        assert code == 0
        assert [line.rpartition(" · ")[2] for line in out.splitlines()[:2]] == ["three", "one"]

    def test_must_be_named_if_there_are_more(self, capsys, tmp_path):
        """The message has their names."""
        for seed, name in enumerate(("one", "two", "three"), 1):
            write_run(tmp_path, seed, experiment=name, steps=1)
        code, _, err = compare(capsys, tmp_path)
        assert code == 2
        assert "has 3 runs: " in err
        assert all(name in err for name in ("one", "two", "three"))


class TestText:
    """What is printed."""

    def test_has_a_row_for_each_figure(self, capsys, runs):
        """A row has both means, the change and its interval."""
        _, out, _ = compare(capsys, runs[0], runs[2])
        row = next(line for line in out.splitlines() if line.startswith("reward "))
        assert row.split()[-1] == "worse"
        assert " to " in row
        assert "training  6 steps (1 to 6), 12 prompts that both have" in out

    def test_names_flipped_prompts(self, capsys, runs):
        """Nine prompts are lost."""
        _, out, _ = compare(capsys, runs[0], runs[2])
        assert "9 prompts mostly solved by A only, 0 by B only" in out
        flips = [line for line in out.splitlines() if line.startswith("  A only  sample ")]
        assert len(flips) == 9
        assert all(re.search(r"  A \d+ of 24, B 0 of 24 rollouts solved  ", line) for line in flips)

    def test_has_only_the_figure_that_is_asked_for(self, capsys, runs):
        """`--figure reward` prints no other row, no prompts and no findings."""
        _, out, _ = compare(capsys, runs[0], runs[2], "--figure", "reward")
        *rows, verdict = out.split("training")[1].splitlines()[2:]
        assert [row.split()[0] for row in rows] == ["reward"]
        assert verdict == "B is worse: reward"
        told = json.loads(compare(capsys, runs[0], runs[2], "--figure", "solved", "--json")[1])
        assert [each["name"] for each in told["parts"][0]["figures"]] == ["solved"]
        assert len(told["parts"][0]["lost"]) == 9
        assert told["new"] == []

    def test_has_findings_that_are_new_and_gone(self, capsys, runs):
        """A finding of only one run is listed."""
        assert "findings that are new\n  warning  groups without signal" in compare(capsys, runs[0], runs[2])[1]
        assert "findings that are gone\n  warning  groups without signal" in compare(capsys, runs[2], runs[0])[1]

    def test_has_no_control_characters(self, capsys, runs):
        """What a model wrote is printed without what a terminal obeys."""
        _, out, _ = compare(capsys, runs[0], runs[2])
        assert out.replace("\n", "").isprintable()

    def test_as_json_is_one_object(self, capsys, runs):
        """Figures, flips, findings and the reasons are in it."""
        code, out, _ = compare(capsys, runs[0], runs[2], "--json")
        told = json.loads(out)
        assert code == 1
        assert told["worse"][0] == "reward"
        assert told["parts"][0]["figures"][0]["name"] == "reward"
        assert len(told["parts"][0]["lost"]) == 9
        assert told["new"][0]["check"] == "groups_without_signal"


class TestPage:
    """The page of `--html`."""

    def test_is_one_file_without_scripts(self, capsys, tmp_path, runs):
        """It loads nothing, runs nothing, and shows what the text does; a model's text is text."""
        file = tmp_path / "page.html"
        assert compare(capsys, runs[0], runs[2], "--html", file)[0] == 1
        page = file.read_text(encoding="utf-8")
        assert "B is worse: reward" in page
        assert "&lt;script&gt;" in page
        assert "<script" not in page
        assert "src=" not in page
        assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page
