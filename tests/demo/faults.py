"""Faults of runs of the demo, to test what finds them: which there are, whom they hit, and what they do."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

from opentelemetry import context as context_api
from opentelemetry.trace import get_current_span

from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op, semconv
from otel_rollout.demo import (
    LOOKUP_TABLE,
    TRAJECTORY_DEADLINE,
    VARIETY,
    AgentLoop,
    Behaviour,
    BpeTokenizer,
    Calculator,
    EngineError,
    Lookup,
    Pass,
    Policy,
    TokenOutput,
    Trajectory,
    Verifier,
    problem_at,
    request_id,
    sampling_params,
)
from otel_rollout.guard import monotonic
from otel_rollout.record import current_frame, runtime


class Fault(Enum):
    """A fault; its value is its name in tables."""

    DEAD_GROUPS = "dead_groups"
    """Most problems have a wrong answer in the dataset: no rollout of theirs is right."""
    TRUNCATION = "truncation"
    """Some trajectories may take two turns only, and get no reward for it."""
    TOOL_ARGUMENTS = "tool_arguments"
    """The lookup tool fails for some of its entries."""
    TIMEOUTS = "timeouts"
    """The lookup tool's environment times out, or resets the connection."""
    DUPLICATES = "duplicates"
    """All rollouts of most problems are sampled with the same seed."""
    MODE_COLLAPSE = "mode_collapse"
    """The policy has fewer and fewer words with each step."""
    HACKED_PART = "hacked_part"
    """The reward gets a part for brevity, which the policy earns by guessing, more so with each step."""
    PREFIX_BREAKS = "prefix_breaks"
    """The agent loop leaves out earlier thoughts, so that a prompt doesn't extend the turn before."""
    STRAGGLERS = "stragglers"
    """A few trajectories wait for a slow tool."""
    STALE_WEIGHTS = "stale_weights"
    """Some trajectories are of weights that are six steps old."""
    LOST_SPANS = "lost_spans"
    """Some trajectories lose a span, and others never end."""


# The chance of a trajectory, or of all of a problem's rollouts, to be hit; the others are hit in ways of their own.
_OF_TRAJECTORY: Final = {
    Fault.TRUNCATION: 0.5,
    Fault.TIMEOUTS: 0.6,
    Fault.PREFIX_BREAKS: 0.25,
    Fault.STALE_WEIGHTS: 0.3,
    Fault.LOST_SPANS: 0.1,
}
_OF_PROBLEM: Final = {Fault.DEAD_GROUPS: 0.8, Fault.DUPLICATES: 0.8}
_HACKING: Final = 0.25
"""The rise of the share of trajectories that hack the reward, with each step after the first."""
_STRAGGLERS_EVERY: Final = 8
_STRAGGLING_ROLLOUTS: Final = 2


@dataclass(frozen=True)
class Faults:
    """The faults of a run.

    Args:
        faults: The faults.
        seed: Decides whom they hit.
    """

    faults: frozenset[Fault] = field(default_factory=frozenset)
    seed: int = 0

    def hitting(self, step: int, sample_index: int, rollout_n: int) -> frozenset[Fault]:
        """Return the faults that hit a training trajectory."""
        return frozenset(fault for fault in self.faults if self._hits(fault, step, sample_index, rollout_n))

    def _hits(self, fault: Fault, step: int, sample_index: int, rollout_n: int) -> bool:
        if fault in _OF_PROBLEM:
            return self._draw(fault, sample_index) < _OF_PROBLEM[fault]
        if fault is Fault.STRAGGLERS:
            return rollout_n < _STRAGGLING_ROLLOUTS and sample_index % _STRAGGLERS_EVERY == step % _STRAGGLERS_EVERY
        if fault in (Fault.TOOL_ARGUMENTS, Fault.MODE_COLLAPSE):
            return True
        chance = _HACKING * (step - 1) if fault is Fault.HACKED_PART else _OF_TRAJECTORY[fault]
        return self._draw(fault, step, sample_index, rollout_n) < chance

    def _draw(self, fault: Fault, *of: int) -> float:
        digest = hashlib.blake2b(f"{self.seed} {fault.value} {of}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") / 2**64


@dataclass(frozen=True)
class FaultyTrajectory(Trajectory):
    """A trajectory with the faults that hit it."""

    hit_by: frozenset[Fault] = frozenset()


SECONDS_OF_STRAGGLER: Final = 3.0
SECONDS_TO_TIMEOUT: Final = 0.2
TURNS_OF_TRUNCATED: Final = 2
STALENESS: Final = 6
PATIENCE: Final = 5
"""The deadlines for which a straggler is waited for, if there are to be some."""
_BROKEN_EVERY: Final = 2

_never_ending: list[ExitStack] = []
"""Trajectories that were left open."""


async def run_faulty_pass(of: Pass, *, tokenizer: BpeTokenizer, seed: int, faults: Faults) -> list[FaultyTrajectory]:
    """Run all trajectories of a training step, some of them with faults, each in the parts of the demo."""

    async def run_one(sample_index: int, rollout_n: int) -> FaultyTrajectory:
        hit_by = faults.hitting(of.step, sample_index, rollout_n)
        deadline = TRAJECTORY_DEADLINE * (PATIENCE if Fault.STRAGGLERS in hit_by else 1)
        started = monotonic()
        outcome: dict[str, Any] = {"status": "cancelled"}
        try:
            outcome = await asyncio.wait_for(_run(of, sample_index, rollout_n, hit_by), deadline)
        except EngineError:
            outcome = {"status": "error"}
        except OSError as error:
            # Before 3.11 wait_for's own error isn't an OSError, and since then it is one without a message.
            outcome = {"status": "error" if error.args else "cancelled"}
        except asyncio.TimeoutError:
            pass
        return FaultyTrajectory(
            of.step, sample_index, rollout_n, of.validate, seconds=monotonic() - started, hit_by=hit_by, **outcome
        )

    async def _run(of: Pass, sample_index: int, rollout_n: int, hit_by: frozenset[Fault]) -> dict[str, Any]:
        loop = make_agent_loop(tokenizer, of.step, hit_by)
        problem = problem_at(sample_index)
        with ExitStack() as trace:
            trace.enter_context(
                rollout_trace_attr(sample_index=sample_index, step=of.step, rollout_n=rollout_n, name="agent_loop")
            )
            annotate(input=problem.question)
            if Fault.STALE_WEIGHTS in hit_by:
                annotate(**{semconv.STALENESS: STALENESS})
            output = await loop.run(
                problem.question,
                request_id(of, sample_index, rollout_n),
                sampling_params(of, sample_index, 0 if Fault.DUPLICATES in hit_by else rollout_n, seed),
            )
            expected = problem.answer + 1 if Fault.DEAD_GROUPS in hit_by else problem.answer
            reward = await _score(output.answer, expected, hit_by, faults)
            status = "truncated" if output.truncated else "completed"
            annotate(reward=reward, status=status, output=output.answer)
            if Fault.LOST_SPANS in hit_by and rollout_n % 2:
                # It never ends, as if its process had been killed.
                _never_ending.append(trace.pop_all())
        return {
            "status": status,
            "reward": reward,
            "answer": output.answer,
            "turns": output.turns,
            "tool_errors": output.tool_errors,
        }

    return await asyncio.gather(*(run_one(sample, n) for sample in range(of.samples) for n in range(of.rollouts)))


async def _score(answer: str | None, expected: float, hit_by: frozenset[Fault], faults: Faults) -> float:
    if Fault.LOST_SPANS in hit_by:
        with rollout_trace_attr(trace=False):
            reward = await Verifier().score(answer, expected)
        lose_a_span()
        return reward
    reward = await Verifier().score(answer, expected)
    if Fault.HACKED_PART in faults.faults:
        # Guesses get the part for brevity in full.
        brevity = 1.0 if Fault.HACKED_PART in hit_by else 0.1
        annotate(rewards={"correct": reward, "brevity": brevity})
        reward += brevity
    return reward


def lose_a_span() -> None:
    """Count a span of the current trajectory as dropped, as a full queue does."""
    frame = current_frame(context_api.get_current())
    assert runtime.pipeline is not None
    assert frame is not None
    assert frame.trajectory is not None
    for exporter in runtime.pipeline.exporters:
        frame.trajectory.add_dropped_span(exporter)


class FaultyPolicy(Policy):
    """A policy that guesses, or has fewer and fewer words, and records broken prefixes.

    Args:
        tokenizer: Its tokenizer.
        step: The step; it has been trained for those before.
        hit_by: The faults.
    """

    def __init__(self, tokenizer: BpeTokenizer, step: int, hit_by: frozenset[Fault]) -> None:
        super().__init__(tokenizer, step - 1)
        self._variety = max(1, VARIETY // 8 ** (step - 1)) if Fault.MODE_COLLAPSE in hit_by else VARIETY
        self._guesses = Fault.HACKED_PART in hit_by
        self._contexts: dict[str, list[int]] = {}

    @rollout_trace_op(kind="LLM")
    async def generate(self, request_id, prompt_ids, sampling_params) -> TokenOutput:
        """Generate, and record on the span if the prompt doesn't extend the turn before."""
        before = self._contexts.get(request_id, [])
        if list(prompt_ids[: len(before)]) != before:
            get_current_span().set_attribute(semconv.PREFIX_BROKEN, True)
        output = await Policy.generate.__wrapped__(self, request_id, prompt_ids, sampling_params)
        self._contexts[request_id] = [*prompt_ids, *output.token_ids]
        return output

    def behaviour(self, sampling_params) -> Behaviour:
        """Guess, if the reward is hacked."""
        return Behaviour.GUESS if self._guesses else super().behaviour(sampling_params)

    def wording(self, sampling_params) -> str:
        """Choose among the words that are left."""
        return super().wording(replace(sampling_params, seed=sampling_params.seed // 7 % self._variety * 7))


class ForgetfulAgentLoop(AgentLoop):
    """An agent loop that leaves the thoughts of earlier turns out of a prompt, which then doesn't extend them."""

    def next_prompt(self, token_ids, generated, results) -> list[int]:
        """Return the prompt with the last message from its first tool call on."""
        text = self.tokenizer.decode(token_ids[-generated:])
        kept = self.tokenizer.encode(text[max(0, text.find("<tool_call>")) :])
        return super().next_prompt(token_ids[:-generated] + kept, len(kept), results)


class _Unreachable(dict[str, str]):
    """A table whose environment is gone: every other entry times out, the others reset the connection."""

    def get(self, entry: str, default: object = None) -> str:
        """Raise what a client of a sandbox raises."""
        if len(entry) % 2:
            raise TimeoutError(f"no answer for {entry!r} in {SECONDS_TO_TIMEOUT} s")
        raise ConnectionResetError(f"connection reset while reading {entry!r}")


def make_agent_loop(tokenizer: BpeTokenizer, step: int, hit_by: frozenset[Fault]) -> AgentLoop:
    """Return the agent loop of a trajectory that faults hit.

    Args:
        tokenizer: The policy's tokenizer.
        step: The step, which decides how far a fault over steps has come.
        hit_by: The faults.
    """
    make = ForgetfulAgentLoop if Fault.PREFIX_BREAKS in hit_by else AgentLoop
    options = {"max_turns": TURNS_OF_TRUNCATED} if Fault.TRUNCATION in hit_by else {}
    return make(FaultyPolicy(tokenizer, step, hit_by), [Calculator(), _lookup(hit_by)], **options)


def _lookup(hit_by: frozenset[Fault]) -> Lookup:
    table: Mapping[str, str] = LOOKUP_TABLE
    if Fault.TOOL_ARGUMENTS in hit_by:
        table = {entry: value for entry, value in table.items() if len(entry) % _BROKEN_EVERY}
    if Fault.TIMEOUTS in hit_by:
        return Lookup(_Unreachable(table), latency=SECONDS_TO_TIMEOUT)
    return Lookup(table, latency=SECONDS_OF_STRAGGLER) if Fault.STRAGGLERS in hit_by else Lookup(table)
