"""The rollout: n traced trajectories of every sample, many at a time."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op
from otel_rollout.demo.agent_loop import AgentLoop
from otel_rollout.demo.faults import Fault, Faults
from otel_rollout.demo.faulty_parts import annotate_faults, lose_a_span, make_agent_loop
from otel_rollout.demo.policy import EngineError, SamplingParams
from otel_rollout.demo.problems import problem_at
from otel_rollout.demo.tokenizer import BpeTokenizer
from otel_rollout.guard.clock import monotonic

__all__ = ["Pass", "Trajectory", "Verifier", "mean_reward", "passes", "run_pass"]

TRAJECTORY_DEADLINE = 2.0
"""Seconds after which a trainer no longer waits for a straggler."""
DEADLINE_PARTS = 20
"""It is waited for in parts: on a busy machine each takes longer, as turns do, so only stragglers are cancelled."""
PATIENCE = 5
"""The deadlines for which a straggler is waited for, if there are to be some."""

_never_ending: list[ExitStack] = []
"""Trajectories that were left open."""


@dataclass(frozen=True)
class Pass:
    """One pass over the samples.

    Args:
        step: The training step.
        samples: The number of samples.
        rollouts: The number of trajectories of each.
        validate: True for a validation pass.
    """

    step: int
    samples: int
    rollouts: int
    validate: bool = False

    @property
    def name(self) -> str:
        """The pass's name on the screen."""
        return "validation" if self.validate else f"step {self.step}"

    @property
    def trajectories(self) -> int:
        """The number of its trajectories."""
        return self.samples * self.rollouts


@dataclass(frozen=True)
class Trajectory:
    """One trajectory and its outcome; `reward` is None if it was not scored."""

    step: int
    sample_index: int
    rollout_n: int
    validate: bool
    status: str
    seconds: float
    reward: float | None = None
    answer: str | None = None
    turns: int = 0
    tool_errors: int = 0
    hit_by: frozenset[Fault] = frozenset()


class Verifier:
    """Compares answers with the dataset's."""

    @rollout_trace_op(kind="EVALUATOR")
    async def score(self, answer: str | None, expected: float) -> float:
        """Return 1.0 for the right number, else 0.0."""
        try:
            number = float(answer or "nan")
        except ValueError:
            return 0.0
        return 1.0 if math.isclose(number, expected, rel_tol=1e-6) else 0.0


def passes(steps: int, samples: int, rollouts: int) -> list[Pass]:
    """Return the training steps and the validation pass after them, with one trajectory a sample."""
    training = [Pass(step, samples, rollouts) for step in range(1, steps + 1)]
    return [*training, Pass(steps, samples, 1, validate=True)]


async def run_pass(
    of: Pass,
    *,
    tokenizer: BpeTokenizer,
    seed: int,
    concurrency: int,
    on_done: Callable[[Trajectory], None],
    faults: Faults | None = None,
) -> list[Trajectory]:
    """Run all trajectories of a pass.

    Args:
        of: The pass.
        tokenizer: The policy's tokenizer.
        seed: Decides everything that the policy does.
        concurrency: The number of trajectories that run at a time.
        on_done: Called with each trajectory as it ends.
        faults: The faults of training trajectories.
    """
    steps_trained = of.step if of.validate else of.step - 1
    agent_loops: dict[frozenset[Fault], AgentLoop] = {}
    slots = asyncio.Semaphore(concurrency)

    async def run_in_slot(sample_index: int, rollout_n: int) -> Trajectory:
        is_hit = faults is not None and not of.validate
        hit_by = faults.hitting(of.step, sample_index, rollout_n) if faults and is_hit else frozenset()
        if hit_by not in agent_loops:
            agent_loops[hit_by] = make_agent_loop(tokenizer, steps_trained, of.step, hit_by)
        async with slots:
            planned = _Planned(of, sample_index, rollout_n, seed, hit_by, _brevity(hit_by, faults if is_hit else None))
            trajectory = await _run_to_deadline(agent_loops[hit_by], planned)
        on_done(trajectory)
        return trajectory

    return await asyncio.gather(*(run_in_slot(sample, n) for sample in range(of.samples) for n in range(of.rollouts)))


class _Planned(NamedTuple):
    """A trajectory before it runs."""

    of: Pass
    sample_index: int
    rollout_n: int
    seed: int
    hit_by: frozenset[Fault]
    brevity: float | None

    def ended(self, status: str, started: float, **outcome: Any) -> Trajectory:
        """Return the trajectory with its outcome."""
        seconds = monotonic() - started
        of = self.of
        return Trajectory(
            of.step, self.sample_index, self.rollout_n, of.validate, status, seconds, hit_by=self.hit_by, **outcome
        )


async def _run_to_deadline(agent_loop: AgentLoop, planned: _Planned) -> Trajectory:
    started = monotonic()
    deadline = TRAJECTORY_DEADLINE * (PATIENCE if Fault.STRAGGLERS in planned.hit_by else 1)
    task = asyncio.ensure_future(_run_trajectory(agent_loop, planned))
    try:
        for _ in range(DEADLINE_PARTS):
            await asyncio.wait({task}, timeout=deadline / DEADLINE_PARTS)
            if task.done():
                return task.result()
    except (EngineError, OSError):
        status = "error"
    else:
        status = "cancelled"
    finally:
        # Here too if the rollout itself is cancelled.
        task.cancel()
        await asyncio.wait({task})
    return planned.ended(status, started)


async def _run_trajectory(agent_loop: AgentLoop, planned: _Planned) -> Trajectory:
    started = monotonic()
    of, hit_by = planned.of, planned.hit_by
    problem = problem_at(planned.sample_index)
    with ExitStack() as trace:
        trace.enter_context(
            rollout_trace_attr(
                sample_index=planned.sample_index,
                step=of.step,
                rollout_n=planned.rollout_n,
                name="agent_loop",
                validate=of.validate,
            )
        )
        annotate(input=problem.question)
        annotate_faults(hit_by)
        output = await agent_loop.run(
            problem.question,
            request_id=f"{of.name.replace(' ', '-')}/sample-{planned.sample_index}/rollout-{planned.rollout_n}",
            sampling_params=_sampling_params(planned),
        )
        expected = problem.answer + 1 if Fault.DEAD_GROUPS in hit_by else problem.answer
        reward = await _score(output.answer, expected, planned)
        status = "truncated" if output.truncated else "completed"
        annotate(reward=reward, status=status, output=output.answer)
        if Fault.LOST_SPANS in hit_by and planned.rollout_n % 2:
            # It never ends, as if its process had been killed.
            _never_ending.append(trace.pop_all())
    return planned.ended(
        status,
        started,
        reward=reward,
        answer=output.answer,
        turns=output.turns,
        tool_errors=output.tool_errors,
    )


async def _score(answer: str | None, expected: float, planned: _Planned) -> float:
    if Fault.LOST_SPANS in planned.hit_by:
        with rollout_trace_attr(trace=False):
            reward = await Verifier().score(answer, expected)
        lose_a_span()
        return reward
    reward = await Verifier().score(answer, expected)
    if planned.brevity is not None:
        annotate(rewards={"correct": reward, "brevity": planned.brevity})
        reward += planned.brevity
    return reward


def _brevity(hit_by: frozenset[Fault], faults: Faults | None) -> float | None:
    """Return the part of the reward for brevity, which guesses get in full; None if the reward has none."""
    if faults is None or Fault.HACKED_PART not in faults.faults:
        return None
    return 1.0 if Fault.HACKED_PART in hit_by else 0.1


def _sampling_params(planned: _Planned) -> SamplingParams:
    of, sample_index = planned.of, planned.sample_index
    rollout_n = 0 if Fault.DUPLICATES in planned.hit_by else planned.rollout_n
    drawn = hashlib.blake2b(
        f"seed {planned.seed}, {of.name}, sample {sample_index}, rollout {rollout_n}".encode(), digest_size=4
    ).digest()
    return SamplingParams(temperature=0.0 if of.validate else 1.0, seed=int.from_bytes(drawn, "big"))


def mean_reward(trajectories: Sequence[Trajectory]) -> float | None:
    """Return the mean of the known rewards, as `otel-rollout ls` does; None if there are none."""
    rewards = [trajectory.reward for trajectory in trajectories if trajectory.reward is not None]
    return sum(rewards) / len(rewards) if rewards else None
