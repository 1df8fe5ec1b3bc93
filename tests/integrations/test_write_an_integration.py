"""The integration of docs/how-to/write-an-integration.md, with its trainer, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import otel_rollout
from otel_rollout import RecordedTrajectory
from tests.docs.code_blocks import code_blocks

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "write-an-integration.md"
FILES = ("tinytrainer.py", "tinytrainer_tracing.py", "train.py")
TRACES = "traces"
DIES = """    def generate(self, rows):
        import os

        if self.step == 2:
            os._exit(9)
"""

if not PAGE.is_file():
    pytest.skip("the source tree isn't here", allow_module_level=True)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return a folder with the page's trainer, integration and program."""
    saved = {block.comments.get("file"): block.text for block in code_blocks(PAGE)}
    for name in FILES:
        (tmp_path / name).write_text(saved[name], encoding="utf-8")
    return tmp_path


def replace(file: Path, old: str, new: str) -> None:
    """Replace a text that a file has."""
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def train(folder: Path, *, is_traced: bool = True, exit_code: int = 0) -> str:
    """Train in a fresh process, and return what it logs."""
    traced = {"OTEL_TRACES_EXPORTER": "file", "OTEL_ROLLOUT_DIR": str(folder / TRACES)}
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}",
            # As users have it: what a hook raises doesn't reach the program.
            "OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS": "",
            **(traced if is_traced else {"OTEL_SDK_DISABLED": "true"}),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == exit_code, done.stderr
    return done.stderr


def read(folder: Path, **filters: Any) -> dict[tuple[Any, Any, Any], RecordedTrajectory]:
    """Return the recorded trajectories by their identity."""
    found = list(otel_rollout.read_trajectories(folder / TRACES, **filters))
    by_identity = {(each.step, each.sample_index, each.rollout_n): each for each in found}
    assert len(by_identity) == len(found)
    return by_identity


def rows(folder: Path) -> dict[tuple[Any, Any, Any], dict[str, Any]]:
    """Return the trainer's rows by their identity, as `keep_rows` has it write them."""
    lines = (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    return {(row["step"], row["id"], row["n"]): row for row in map(json.loads, lines)}


def keep_rows(folder: Path) -> None:
    """Let the trainer write its rows when it updates."""
    replace(
        folder / "train.py",
        "import random\n",
        """import json, random
import tinytrainer


class Logged(tinytrainer.Trainer):
    def select(self, rows):
        kept = super().select(rows)
        with open("rows.jsonl", "a") as file:
            for row in rows:
                fate = "trained" if any(row is each for each in kept) else "filtered"
                file.write(json.dumps({**row, "step": self.step, "fate": fate}) + "\\n")
        return kept

""",
    )
    replace(folder / "train.py", "Trainer(engine", "Logged(engine")


class TestTraining:
    """A run of the trainer."""

    def test_each_trajectory_has_what_its_row_has(self, programs: Path) -> None:
        """Turns, messages, status, reward, its parts, advantage and fate are those of the trainer's row."""
        keep_rows(programs)
        assert train(programs) == ""

        expected, found = rows(programs), read(programs)

        assert found.keys() == expected.keys()
        assert len(found) == 2 * 3 * 2
        for identity, trajectory in found.items():
            row, summary = expected[identity], trajectory.summary
            answers = [message["content"] for message in row["messages"] if message["role"] == "assistant"]
            turns = [span for span in trajectory.spans if span.name == "generate"]
            assert [span.attributes["openinference.span.kind"] for span in turns] == ["LLM"] * len(answers)
            assert [json.loads(span.attributes["gen_ai.output.messages"])[0]["parts"] for span in turns] == [
                [{"type": "text", "content": answer}] for answer in answers
            ]
            [root] = [span for span in trajectory.spans if span.parent is None]
            assert root.attributes["input.value"] == row["question"]
            assert root.attributes["output.value"] == answers[-1]
            assert summary.turns == len(answers)
            assert trajectory.status == ("completed" if row["done"] else "truncated")
            assert (trajectory.reward, summary.advantage, summary.fate) == (
                row["reward"],
                row["advantage"],
                row["fate"],
            )
            assert summary.reward_parts == row["rewards"]
        assert Counter(each.summary.fate for each in found.values()).keys() == {"trained", "filtered"}
        assert {each.status for each in found.values()} == {"completed", "truncated"}

    def test_names_are_the_configurations(self, programs: Path) -> None:
        """Project and experiment are those of the trainer's configuration."""
        train(programs)
        assert {(each.project_name, each.experiment_name) for each in read(programs).values()} == {("tiny", "tiny-1")}

    def test_the_trainer_gets_the_same(self, programs: Path) -> None:
        """The rows are the same with tracing on, off, and without the integration, but for the column of handles."""
        keep_rows(programs)
        train(programs)
        traced = rows(programs)
        (programs / "rows.jsonl").unlink()
        train(programs, is_traced=False)
        off = rows(programs)
        (programs / "rows.jsonl").unlink()
        replace(programs / "train.py", "import tinytrainer_tracing", "#")
        train(programs)

        assert all(row.pop("otel_rollout_handle") for row in traced.values())
        assert traced == off == rows(programs)

    def test_without_an_edit_of_the_program(self, programs: Path) -> None:
        """With the line in a `sitecustomize.py`, the program itself is not edited; a spawned child is traced too."""
        replace(programs / "train.py", "import tinytrainer_tracing", "import multiprocessing  #")
        replace(programs / "train.py", "Trainer(engine", "def work():\n    Trainer(engine")
        with (programs / "train.py").open("a") as file:
            file.write(
                "\n\nif __name__ == '__main__':\n"
                "    child = multiprocessing.get_context('spawn').Process(target=work)\n"
                "    child.start(), child.join()\n"
            )
        (programs / "sitecustomize.py").write_text("import tinytrainer_tracing\n")
        assert train(programs) == ""
        assert len(read(programs)) == 12


class TestAnotherVersion:
    """A trainer that isn't as the integration expects."""

    def test_a_function_is_gone(self, programs: Path) -> None:
        """It trains, with one warning; the other hooks record what they see."""
        replace(programs / "tinytrainer.py", "def score(", "def grade(")
        replace(programs / "tinytrainer.py", "self.score(", "self.grade(")
        [warning] = train(programs).splitlines()
        assert warning.startswith("tinytrainer: rewards and advantages are not recorded")
        assert warning.endswith("(AttributeError: Trainer has no score)")
        found = read(programs)
        assert len(found) == 12
        assert {(each.reward, each.summary.fate) for each in found.values()} == {(None, "trained"), (None, "filtered")}

    def test_rows_are_others(self, programs: Path) -> None:
        """Rows without a key that the integration reads are one warning, however many there are."""
        replace(programs / "tinytrainer.py", '"reward"]', '"score"]')
        assert train(programs).count("tinytrainer: rewards and advantages are not recorded") == 1
        assert {each.reward for each in read(programs).values()} == {None}


class TestExits:
    """The end of a process."""

    def test_killed_in_a_step(self, programs: Path) -> None:
        """A process that is killed has delivered the steps before, with what came late."""
        replace(programs / "tinytrainer.py", "    def generate(self, rows):\n", DIES)
        train(programs, exit_code=9)
        found = read(programs, step=1)
        assert len(found) == 6
        assert all(each.has_root and each.summary.fate and each.reward is not None for each in found.values())

    def test_an_exception_in_a_rollout(self, programs: Path) -> None:
        """The trajectories of the batch end with the exception, which the program gets as it is."""
        replace(programs / "tinytrainer.py", "    def generate(self, rows):\n", DIES.replace("os._exit(9)", "1 / 0"))
        assert "ZeroDivisionError" in train(programs, exit_code=1)
        failed = read(programs, step=2)
        assert {each.status for each in failed.values()} == {"error"}
        assert len(failed) == 6
