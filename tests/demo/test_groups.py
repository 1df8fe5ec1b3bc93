"""Which group is shown, and how."""

from rich.console import Console

from otel_rollout.demo.report import group_table, most_telling_group, most_telling_trajectory
from otel_rollout.demo.rollout import Trajectory


def trajectory(sample_index: int, rollout_n: int, status: str = "completed", **fields) -> Trajectory:
    return Trajectory(
        fields.pop("step", 1), sample_index, rollout_n, fields.pop("validate", False), status, 0.5, **fields
    )


OVERCAME = trajectory(1, 0, reward=1.0, answer="47", turns=4, tokens=1200, tool_errors=1)
WRONG = trajectory(1, 1, reward=0.0, answer="46", turns=3, tokens=150)
FAILED = trajectory(1, 2, "error")
DULL = [trajectory(0, n, reward=1.0, answer="9", turns=3, tokens=90) for n in range(3)]


class TestMostTellingGroup:
    """The group that is shown."""

    def test_has_an_overcome_tool_error_and_mixed_outcomes(self):
        """Where all rollouts came to the same there is little to see."""
        assert most_telling_group([*DULL, OVERCAME, WRONG, FAILED]) == [OVERCAME, WRONG, FAILED]

    def test_is_of_the_asked_training_step(self):
        """Other steps and the validation pass do not count."""
        others = [trajectory(1, 0, step=2), trajectory(1, 0, validate=True)]
        assert most_telling_group([*others, *DULL], step=1) == DULL


class TestMostTellingTrajectory:
    """The trajectory that is shown."""

    def test_is_the_one_that_came_through_trouble(self):
        """A tool error that was overcome says more than a smooth run or a failure."""
        smooth = trajectory(1, 3, reward=1.0, turns=9)
        assert most_telling_trajectory([FAILED, smooth, OVERCAME, WRONG]) is OVERCAME


class TestGroupTable:
    """The rollouts of one prompt side by side."""

    def test_has_one_row_a_rollout(self):
        """What a failed trajectory did not get to is a dash; its advantage is that of reward 0."""
        console = Console(width=100, record=True, quiet=False, file=None)
        with console.capture() as captured:
            console.print(group_table([OVERCAME, WRONG, FAILED]))
        assert [line.split() for line in captured.get().splitlines()] == [
            ["rollout", "status", "turns", "tokens", "errors", "seconds", "answer", "reward", "advantage"],
            ["0", "completed", "4", "1200", "1", "0.50", "47", "1.0", "+1.41"],
            ["1", "completed", "3", "150", "0", "0.50", "46", "0.0", "-0.71"],
            ["2", "error", "-", "-", "-", "0.50", "-", "-", "-0.71"],
        ]
