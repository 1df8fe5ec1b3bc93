"""What each behaviour of the policy comes to in the agent loop."""

import asyncio

import pytest

from otel_rollout.demo import (
    LOOKUP_TABLE,
    PROBLEMS,
    AgentLoop,
    AgentLoopOutput,
    Behaviour,
    Calculator,
    EngineError,
    Lookup,
    Policy,
    Problem,
    ToolError,
    calculate,
)

pytestmark = pytest.mark.usefixtures("fast_engine")

EACH_PROBLEM = pytest.mark.parametrize("problem", PROBLEMS, ids=range(len(PROBLEMS)))


@pytest.fixture
def run(tokenizer, sampling_that):
    def run(problem: Problem, behaviour: Behaviour, **options) -> AgentLoopOutput:
        loop = AgentLoop(Policy(tokenizer), [Calculator(), Lookup(LOOKUP_TABLE, latency=0)], **options)
        return asyncio.run(loop.run(problem.question, "request", sampling_that(behaviour)))

    return run


def is_right(output: AgentLoopOutput, problem: Problem) -> bool:
    return output.answer is not None and calculate(output.answer) == pytest.approx(problem.answer)


class TestOutcomes:
    """What a trajectory comes to, by the policy's behaviour."""

    @EACH_PROBLEM
    def test_a_solution_is_right(self, run, problem):
        """One turn for each of the solution's and one to answer, without a tool error."""
        output = run(problem, Behaviour.SOLVE)
        assert is_right(output, problem)
        assert (output.turns, output.tool_errors) == (len(problem.solution) + 1, 0)

    @EACH_PROBLEM
    def test_a_slip_makes_the_answer_wrong(self, run, problem):
        """The calculator computes what it was given, and the policy believes it."""
        output = run(problem, Behaviour.SLIP)
        assert output.answer is not None
        assert not is_right(output, problem)

    @EACH_PROBLEM
    def test_a_guess_is_wrong_and_quick(self, run, problem):
        """Whoever answers without the tools is wrong after one turn."""
        output = run(problem, Behaviour.GUESS)
        assert not is_right(output, problem)
        assert output.turns == 1

    @EACH_PROBLEM
    @pytest.mark.parametrize("behaviour", [Behaviour.CLUMSY, Behaviour.MISREMEMBER])
    def test_a_tool_error_is_told_and_mended(self, run, problem, behaviour):
        """A tool that fails costs a turn, and the rollout goes on to the right answer."""
        output = run(problem, behaviour)
        assert is_right(output, problem)
        assert (output.turns, output.tool_errors) == (len(problem.solution) + 2, 1)

    def test_rambling_ends_at_the_last_turn(self, run):
        """A policy that never answers is cut off, without an answer."""
        output = run(PROBLEMS[0], Behaviour.RAMBLE, max_turns=5)
        assert (output.answer, output.truncated, output.turns) == (None, True, 5)

    def test_a_crash_of_the_engine_ends_the_trajectory(self, run):
        """An engine error is no tool error: it leaves the loop."""
        with pytest.raises(EngineError, match="KV cache"):
            run(PROBLEMS[0], Behaviour.CRASH)

    def test_a_stalled_engine_can_be_cancelled(self, tokenizer, sampling_that):
        """The loop does not swallow the cancellation of a straggler."""
        loop = AgentLoop(Policy(tokenizer), [Calculator(), Lookup(LOOKUP_TABLE, latency=0)])
        running = loop.run(PROBLEMS[0].question, "request", sampling_that(Behaviour.STALL))
        with pytest.raises(asyncio.TimeoutError):
            asyncio.run(asyncio.wait_for(running, 0.2))


class TestTokens:
    """The token ids that a trainer would learn from."""

    def test_are_the_whole_conversation(self, run, tokenizer):
        """Prompt and response together decode to everything that was said, the tools' results included."""
        problem = PROBLEMS[0]
        output = run(problem, Behaviour.SOLVE)
        assert tokenizer.decode(output.prompt_ids).endswith(f"<|user|>{problem.question}<|end|><|assistant|>")
        response = tokenizer.decode(output.response_ids)
        assert response.count("<|assistant|>") == output.turns - 1
        assert "<|tool|>2.5<|end|><|tool|>3<|end|>" in response
        assert response.endswith("<answer>47</answer>")


class TestTools:
    """How tool calls are made."""

    def test_an_unknown_tool_is_told(self, tokenizer, sampling_that):
        """A call of a tool that is not there goes back to the policy as an error."""
        loop = AgentLoop(Policy(tokenizer), [Calculator()], max_turns=2)
        output = asyncio.run(loop.run(PROBLEMS[0].question, "request", sampling_that(Behaviour.SOLVE)))
        assert "error: there is no tool 'lookup'" in tokenizer.decode(output.response_ids)
        assert output.tool_errors == 4

    def test_calls_of_one_turn_run_side_by_side(self, tokenizer, sampling_that):
        """Two look-ups in one turn are under way at the same time."""
        under_way: list[int] = []

        class Watched(Lookup):
            async def execute(self, argument: str) -> str:
                under_way.append(1)
                for _ in range(100):
                    if len(under_way) == 2:
                        return LOOKUP_TABLE[argument]
                    await asyncio.sleep(0.01)
                raise ToolError("left alone")

        loop = AgentLoop(Policy(tokenizer), [Calculator(), Watched(LOOKUP_TABLE)])
        output = asyncio.run(loop.run(PROBLEMS[0].question, "request", sampling_that(Behaviour.SOLVE)))
        assert output.tool_errors == 0
