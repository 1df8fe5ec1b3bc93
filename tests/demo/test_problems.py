"""The dataset is solvable: what stands as the answer is what the tools give."""

import pytest

from otel_rollout.demo import LOOKUP_TABLE, PROBLEMS, Problem, calculate, problem_at


class TestProblems:
    """The problems and their solutions."""

    def test_there_are_sixteen_different_ones(self):
        """Each sample of a step is a problem of its own."""
        assert len({problem.question for problem in PROBLEMS}) == 16

    @pytest.mark.parametrize("problem", PROBLEMS, ids=range(len(PROBLEMS)))
    def test_the_last_calculation_gives_the_answer(self, problem: Problem):
        """A solution ends with one call of the calculator, whose value is the answer."""
        (last,) = problem.solution[-1].calls
        assert last.tool == "calculator"
        assert calculate(last.argument) == pytest.approx(problem.answer)

    @pytest.mark.parametrize("problem", PROBLEMS, ids=range(len(PROBLEMS)))
    def test_numbers_come_from_the_question_or_from_a_tool(self, problem: Problem):
        """A solution looks up entries that exist, and the values that it found stand in its calculations."""
        calls = [call for turn in problem.solution for call in turn.calls]
        found = [LOOKUP_TABLE[call.argument] for call in calls if call.tool == "lookup"]
        expressions = " ".join(call.argument for call in calls if call.tool == "calculator")
        assert found
        assert [value for value in found if value not in expressions] == []


class TestProblemAt:
    """The problem of a sample."""

    def test_past_the_last_one_they_begin_again(self):
        """A step may have more samples than there are problems."""
        assert problem_at(0) is problem_at(16) is PROBLEMS[0]
