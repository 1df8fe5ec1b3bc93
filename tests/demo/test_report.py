"""The report at the end, and whether it says plainly that something is missing."""

import io
import shlex

import pytest
from rich.console import Console

from otel_rollout import ExporterStats
from otel_rollout.demo import Trajectory
from otel_rollout.demo.report import print_delivery, print_trajectory, print_waiting, print_where_next

from .spans import make_trajectory

TRAJECTORY = Trajectory(1, 7, 2, False, "completed", 0.1, reward=1.0)
WHOLE = ExporterStats(recorded=1300, delivered=1300)
LATE = ExporterStats(recorded=1300, delivered=300, lost={"shutdown": 1000}, last_error="connection refused")
SPOOLED = ExporterStats(recorded=10, delivered=4, spooled=6, last_error="connection refused")
LOST = ExporterStats(recorded=10, delivered=7, lost={"refused": 2, "queue full": 1})


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=120, highlight=False)


def lines(console: Console) -> list[str]:
    return [line.strip() for line in console.file.getvalue().splitlines() if line.strip()]


class TestPrintDelivery:
    """The delivery statistics."""

    def test_is_satisfied_when_everything_was_delivered(self, console):
        """Then there is a table and nothing else."""
        assert print_delivery(console, {"otlp": WHOLE})
        assert [line.split() for line in lines(console)] == [
            ["Delivery"],
            ["backend", "spans", "delivered", "lost"],
            ["otlp", "1,300", "1,300", "0"],
        ]

    def test_says_what_was_not_taken_in_time_and_why(self, console):
        """The backend's own words stand beside it."""
        assert not print_delivery(console, {"otlp": LATE})
        assert lines(console)[-2:] == [
            "NOT DELIVERED  otlp did not take 1,000 spans in time.",
            "Last trouble: connection refused",
        ]

    def test_says_what_was_lost(self, console):
        """Each reason with its number."""
        assert not print_delivery(console, {"otlp": LOST})
        assert lines(console)[-1] == "NOT DELIVERED  otlp lost spans: 2 refused, 1 queue full."

    def test_the_table_says_what_the_line_below_says(self, console):
        """Spans that were not taken in time are lost, in the table too."""
        print_delivery(console, {"otlp": LATE})
        assert lines(console)[2].split() == ["otlp", "1,300", "300", "1,000"]

    def test_says_what_is_in_the_spool(self, console):
        """Spans on disk are neither delivered nor lost."""
        assert not print_delivery(console, {"otlp": SPOOLED})
        assert [line.split() for line in lines(console)][1:3] == [
            ["backend", "spans", "delivered", "on", "disk", "lost"],
            ["otlp", "10", "4", "6", "0"],
        ]
        assert "NOT DELIVERED  6 spans for otlp are in the spool." in lines(console)

    def test_an_exporter_in_trouble_is_not_hidden_by_one_that_is_not(self, console):
        """Each exporter counts on its own."""
        assert not print_delivery(console, {"otlp": WHOLE, "weave": LOST})

    def test_says_that_tracing_is_off(self, console):
        """Without exporters there is nothing to deliver."""
        assert print_delivery(console, {})
        assert "tracing is off" in lines(console)[-1]


class TestPrintWaiting:
    """The line on a backend that takes its time."""

    def test_says_for_what_it_waits_and_how_long(self, console):
        """An exporter with spans left gets a line with its trouble; one without gets none."""
        dead = ExporterStats(recorded=716, queued=716, last_error="retry: http://localhost:4318: connection refused")
        print_waiting(console, {"otlp": dead, "file": WHOLE, "mlflow": ExporterStats(recorded=1, queued=1)}, 57.0)
        assert lines(console) == [
            (
                "waiting up to 57 s for otlp to take 716 spans (http://localhost:4318: connection refused); "
                "Ctrl-C ends the wait"
            ),
            "waiting up to 57 s for mlflow to take 1 span; Ctrl-C ends the wait",
        ]


class TestPrintTrajectory:
    """The tree of one trajectory."""

    def test_long_lines_give_way_at_the_end(self, console):
        """On a narrow screen a line of the tree stays one line."""
        console.width = 60
        print_trajectory(console, TRAJECTORY, make_trajectory())
        printed = console.file.getvalue().splitlines()
        assert len([line for line in printed if line]) == 7
        assert max(map(len, printed)) == 60
        assert any(line.endswith("…") for line in printed)

    def test_says_that_it_was_not_traced(self, console):
        """A sampler may have left it out."""
        print_trajectory(console, TRAJECTORY, [])
        assert lines(console)[-1].startswith("It was not traced")


class TestPrintWhereNext:
    """Where to look next."""

    def test_commands_stay_on_one_line(self, console):
        """What is there to be copied is not broken, however long it is."""
        command = "    " + "x" * 200
        print_where_next(console, ["Run", "", command])
        assert command.strip() in lines(console)


class TestOnATerminal:
    """Hints that are longer than a terminal is wide."""

    FOLDER = "/home/me/experiments/2026-11-24/rollout-traces"
    COMMAND = f"otel-rollout show {FOLDER} --experiment 'my first one' --step 1 --train --sample 0 --chat"

    @staticmethod
    def shown(*hints: str, width: int = 80) -> list[str]:
        """Return the lines below the heading."""
        console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
        print_where_next(console, hints)
        return console.file.getvalue().splitlines()[2:]

    @pytest.mark.parametrize("width", [40, 60, 80])
    def test_sentences_break_between_words(self, width):
        """No word is broken or lost; a sentence that ends with a comma goes on in the next line."""
        hints = ("List them, compare the rollouts of a prompt, read one,", "or send all to a backend with")
        found = self.shown(*hints, width=width)
        assert max(map(len, found)) <= width
        assert [line[:2] for line in found] == ["  "] * len(found)
        assert " ".join(found).split() == " ".join(hints).split()

    def test_a_path_stays_whole(self):
        """A word that is longer than a line can be copied."""
        assert f"  {self.FOLDER}" in self.shown(f"The trajectories are in {self.FOLDER} since today.", width=40)

    @pytest.mark.parametrize("width", [40, 60, 80])
    def test_a_shell_reads_one_command(self, width):
        """Lines end with a backslash, and an option stays with its value."""
        found = self.shown(f"    {self.COMMAND}", width=width)
        assert all(line.endswith(" \\") for line in found[:-1])
        assert shlex.split(" ".join(line.removesuffix("\\") for line in found)) == shlex.split(self.COMMAND)
        assert all(len(line) <= width or self.FOLDER in line for line in found)
        assert not any(line.removesuffix(" \\").endswith(("--step", "--experiment", "--sample")) for line in found)
