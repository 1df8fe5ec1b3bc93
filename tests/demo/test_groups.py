"""Which group is shown, and how."""

from otel_rollout.demo import Trajectory
from otel_rollout.demo.report import clearest_group, clearest_trajectory, rollout_row

from .spans import make_trajectory


def trajectory(sample_index: int, rollout_n: int, status: str = "completed", **fields) -> Trajectory:
    return Trajectory(
        fields.pop("step", 1), sample_index, rollout_n, fields.pop("validate", False), status, 0.5, **fields
    )


OVERCAME = trajectory(1, 0, reward=1.0, answer="47", turns=4, tool_errors=1)
WRONG = trajectory(1, 1, reward=0.0, answer="46", turns=3)
FAILED = trajectory(1, 2, "error")
DULL = [trajectory(0, n, reward=1.0, answer="9", turns=3) for n in range(3)]


class TestMostTellingGroup:
    """The group that is shown."""

    def test_has_an_overcome_tool_error_and_mixed_outcomes(self):
        """Where all rollouts came to the same there is little to see."""
        assert clearest_group([*DULL, OVERCAME, WRONG, FAILED]) == [OVERCAME, WRONG, FAILED]

    def test_is_of_the_asked_training_step(self):
        """Other steps and the validation pass do not count."""
        others = [trajectory(1, 0, step=2), trajectory(1, 0, validate=True)]
        assert clearest_group([*others, *DULL], step=1) == DULL


class TestMostTellingTrajectory:
    """The trajectory that is shown."""

    def test_is_the_one_that_came_through_trouble(self):
        """A tool error that was overcome says more than a smooth run or a failure."""
        smooth = trajectory(1, 3, reward=1.0, turns=9)
        assert clearest_trajectory([FAILED, smooth, OVERCAME, WRONG]) is OVERCAME


class TestRolloutRow:
    """A trajectory's row in the table of its group."""

    def test_is_what_its_spans_tell(self):
        """The demo's table has the numbers that `otel-rollout ls --sample` has."""
        row = rollout_row(OVERCAME, make_trajectory())
        summary = row.summary
        assert (summary.rollout_n, summary.status, summary.reward) == (2, "completed", 1.0)
        assert sum(tool.errors for tool in summary.tools.values()) == 1

    def test_is_the_demos_own_if_it_was_not_traced(self):
        """Tokens are unknown then; a trajectory that failed has no answer."""
        row = rollout_row(WRONG, [])
        assert (row.summary.rollout_n, row.summary.turns, row.summary.input_tokens, row.answer) == (1, 3, None, "46")
        assert rollout_row(FAILED, []).answer == ""
