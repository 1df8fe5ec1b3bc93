"""A substitute for the model: deterministic by its seeds, with the weaknesses of models."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from otel_rollout import rollout_trace_op
from otel_rollout.demo.chat import BpeTokenizer, write_answer, write_tool_call
from otel_rollout.demo.problems import PROBLEMS, Problem, ToolCall
from otel_rollout.messages import Message, read_template

SECONDS_STALLED = 60.0

_PROBLEM_OF_QUESTION = {problem.question: problem for problem in PROBLEMS}
_LAST_NUMBER = re.compile(r"\d+(\.\d+)?(?!.*\d)")


class EngineError(RuntimeError):
    """The inference engine gave up on a request."""


class Behaviour(Enum):
    """The policy's ways with a problem."""

    SOLVE = "solves it"
    SLIP = "writes a wrong number into the last calculation"
    GUESS = "answers without calling a tool"
    CLUMSY = "writes an expression that the calculator cannot read, then mends it"
    MISREMEMBER = "asks for an entry that the table does not have, then mends it"
    RAMBLE = "checks its result again and again, without ever answering"
    STALL = "stops in the middle of the second turn"
    CRASH = "is thrown out of the engine in the second turn"


_OPENINGS: Final = (
    "The tools give me everything.",
    "That is all I need.",
    "Now I have every number.",
    "This settles it.",
    "Good, that was the last step.",
    "I can answer now.",
    "With that the problem is solved.",
    "No more calls are needed.",
)
_CLOSINGS: Final = ("", " So:", " The answer:", " It comes to", " Hence", " The result is")
VARIETY: Final = len(_OPENINGS) * len(_CLOSINGS)
"""The ways in which the policy words an answer."""

# Chances before training, which fade with it; and chances at a temperature above 0.
_UNLEARNED = {Behaviour.SLIP: 0.3, Behaviour.GUESS: 0.15}
_SAMPLED = {
    Behaviour.CLUMSY: 0.1,
    Behaviour.MISREMEMBER: 0.08,
    Behaviour.RAMBLE: 0.04,
    Behaviour.STALL: 0.03,
    Behaviour.CRASH: 0.03,
}


@dataclass(frozen=True)
class SamplingParams:
    """The sampling of tokens.

    Args:
        temperature: At 0 the policy takes its best way, and nothing goes wrong in the engine.
        seed: Decides the draw.
    """

    temperature: float
    seed: int


@dataclass(frozen=True)
class TokenOutput:
    """The result of a generation.

    Args:
        token_ids: The generated tokens.
        stop_reason: The reason why it stopped.
    """

    token_ids: list[int]
    stop_reason: str


class Policy:
    """The policy after a number of training steps; with each it slips and guesses less.

    Args:
        tokenizer: Its tokenizer.
        steps_trained: The number of training steps.
    """

    seconds_per_call = 0.02
    seconds_per_token = 0.001

    def __init__(self, tokenizer: BpeTokenizer, steps_trained: int = 0) -> None:
        self.tokenizer = tokenizer
        self._steps_trained = steps_trained

    @rollout_trace_op(kind="LLM")
    async def generate(
        self, request_id: str, prompt_ids: Sequence[int], sampling_params: SamplingParams
    ) -> TokenOutput:
        """Generate the next message of a conversation.

        Args:
            request_id: The trajectory's id.
            prompt_ids: The conversation so far.
            sampling_params: The sampling of tokens.

        Raises:
            EngineError: The engine gave up on the request.
        """
        messages = read_template(self.tokenizer.decode(prompt_ids))
        problem = _PROBLEM_OF_QUESTION[next(message.text for message in messages if message.role == "user")]
        behaviour = self.behaviour(sampling_params)
        in_second_turn = any(message.role == "tool" for message in messages)
        if in_second_turn and behaviour is Behaviour.STALL:
            await asyncio.sleep(SECONDS_STALLED)
        text = _next_text(problem, messages, behaviour, self.wording(sampling_params))
        token_ids = self.tokenizer.encode(text)
        await asyncio.sleep(self.seconds_per_call + self.seconds_per_token * len(token_ids))
        if in_second_turn and behaviour is Behaviour.CRASH:
            raise EngineError(f"out of KV cache blocks after {len(prompt_ids)} prompt tokens, request {request_id}")
        return TokenOutput(token_ids, "stop")

    def behaviour(self, sampling_params: SamplingParams) -> Behaviour:
        """Return its way with a problem."""
        return choose_behaviour(sampling_params, self._steps_trained)

    def wording(self, sampling_params: SamplingParams) -> str:
        """Return the sentence before an answer; at temperature 0 it is always the same."""
        drawn = sampling_params.seed // 7 % VARIETY if sampling_params.temperature > 0 else 0
        return _OPENINGS[drawn % len(_OPENINGS)] + _CLOSINGS[drawn // len(_OPENINGS)]


def choose_behaviour(sampling_params: SamplingParams, steps_trained: int) -> Behaviour:
    """Draw a behaviour by a hash of the seed, which is the same in every run and Python."""
    chances = {behaviour: chance * 0.6**steps_trained for behaviour, chance in _UNLEARNED.items()}
    if sampling_params.temperature > 0:
        chances |= _SAMPLED
    digest = hashlib.blake2b(str(sampling_params.seed).encode(), digest_size=8).digest()
    drawn = int.from_bytes(digest, "big") / 2**64
    for behaviour, chance in chances.items():
        if drawn < chance:
            return behaviour
        drawn -= chance
    return Behaviour.SOLVE


def _next_text(problem: Problem, messages: Sequence[Message], behaviour: Behaviour, wording: str) -> str:
    if behaviour is Behaviour.GUESS:
        guess = _LAST_NUMBER.search(problem.question)
        return f"I can see that without the tools. {wording} {write_answer(guess.group() if guess else '1')}"
    turns = _tool_results(messages)
    failed = [any(result.startswith("error") for result in results) for results in turns]
    turns_done = failed.count(False)
    if turns_done < len(problem.solution):
        return _solution_turn(problem, turns_done, behaviour, mending=bool(failed) and failed[-1])
    if behaviour is Behaviour.RAMBLE:
        return _say("Let me make sure of that once more.", problem.solution[-1].calls)
    return f"{wording} {write_answer(turns[-1][-1])}"


def _tool_results(messages: Sequence[Message]) -> list[list[str]]:
    turns: list[list[str]] = []
    for message in messages:
        if message.role == "assistant":
            turns.append([])
        elif message.role == "tool":
            turns[-1].append(message.text)
    return turns


def _solution_turn(problem: Problem, index: int, behaviour: Behaviour, *, mending: bool) -> str:
    turn = problem.solution[index]
    if mending:
        return _say("That did not work, so I write it differently.", turn.calls)
    first, *others = turn.calls
    if index == 0 and behaviour is Behaviour.MISREMEMBER:
        return _say(turn.thought, [ToolCall(first.tool, first.argument.rsplit(" ", 1)[-1] + "s"), *others])
    if index == len(problem.solution) - 1 and behaviour is Behaviour.SLIP:
        return _say(turn.thought, [ToolCall(first.tool, _slip(first.argument))])
    if index == len(problem.solution) - 1 and behaviour is Behaviour.CLUMSY:
        return _say(turn.thought, [ToolCall(first.tool, first.argument.replace("*", "x") + " =")])
    return _say(turn.thought, turn.calls)


def _say(thought: str, calls: Sequence[ToolCall]) -> str:
    return "\n".join([thought, *map(write_tool_call, calls)])


def _slip(expression: str) -> str:
    return _LAST_NUMBER.sub(lambda number: f"{float(number.group()) + 1:g}", expression)
