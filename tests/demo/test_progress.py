"""What is seen while the rollout runs."""

import io
import re

from rich.console import Console

from otel_rollout.demo import Pass, Trajectory
from otel_rollout.demo.session import describe_outcomes, progress_on

DONE = [
    Trajectory(1, 0, 0, False, "completed", 0.5, reward=1.0),
    Trajectory(1, 0, 1, False, "error", 0.5),
    Trajectory(1, 1, 0, False, "truncated", 0.5, reward=0.0),
    Trajectory(1, 1, 1, False, "completed", 0.5, reward=1.0),
]


def show(*, force_terminal: bool) -> str:
    console = Console(file=io.StringIO(), width=120, force_terminal=force_terminal, color_system=None)
    with progress_on(console) as progress:
        progress.pass_begins(Pass(1, samples=2, rollouts=2))
        for trajectory in DONE:
            progress.trajectory_ends(trajectory)
        progress.pass_ends()
    return console.file.getvalue()


class TestProgressOn:
    """The progress that suits the console."""

    def test_a_terminal_gets_a_bar(self):
        """The bar counts trajectories and says how they do."""
        shown = show(force_terminal=True)
        assert "━" in shown
        assert "4/4" in shown
        assert "reward 0.667, 1 truncated, 1 error" in shown

    def test_elsewhere_a_pass_is_one_line(self):
        """A log gets one plain line for each pass, without control characters."""
        assert show(force_terminal=False) == "step 1      4 trajectories in 0.0 s, reward 0.667, 1 truncated, 1 error\n"


class TestDescribeOutcomes:
    """A pass in a few words."""

    def test_a_smooth_pass_has_a_reward_only(self):
        """Ways to end that did not come up are not named."""
        assert describe_outcomes(DONE[:1]) == "reward 1.000"

    def test_a_trajectory_without_a_reward_does_not_count(self):
        """The mean is that of the known rewards, as in `otel-rollout ls`."""
        assert describe_outcomes(DONE[1:3]) == "reward 0.000, 1 truncated, 1 error"
        assert describe_outcomes(DONE[1:2]) == "no reward, 1 error"


class TestNarrowTerminals:
    """What gives way on a narrow terminal."""

    def test_no_number_is_cut(self):
        """On 60 columns the bar is left out; counts, seconds and reward stay whole."""
        console = Console(file=io.StringIO(), width=60, force_terminal=True, color_system=None)
        with progress_on(console) as progress:
            progress.pass_begins(Pass(1, samples=2, rollouts=2))
            for trajectory in DONE:
                progress.trajectory_ends(trajectory)
            progress.pass_ends()
        last = next(line for line in reversed(console.file.getvalue().split("\r")) if "4/4" in line)
        assert re.search(r"step 1 +4/4 +0\.0 s reward 0\.667, 1 truncated", last)
        assert "━" not in last

    def test_the_name_and_the_count_of_a_pass_stay(self):
        """At 60 columns the outcomes are cut, the name and the count are not."""
        console = Console(file=io.StringIO(), width=60, force_terminal=True, color_system=None)
        with progress_on(console) as progress:
            for validate in (False, True):
                progress.pass_begins(Pass(1, samples=16, rollouts=4, validate=validate))
                for trajectory in DONE * 3:
                    progress.trajectory_ends(trajectory)
        assert re.search(r"validation +12/64 +\d", console.file.getvalue())
