"""Faults that the demo can be given, so that what finds them can be tested: which there are, and whom they hit."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from otel_rollout.errors import ConfigurationError
from otel_rollout.text.near_miss import did_you_mean

__all__ = ["Fault", "Faults", "read_faults"]


class Fault(Enum):
    """A fault; its value is its name on the command line."""

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
    Fault.TRUNCATION: 0.35,
    Fault.TIMEOUTS: 0.4,
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


def read_faults(text: str, seed: int) -> Faults:
    """Return the faults that a command line names, with commas between them.

    Raises:
        ConfigurationError: There is no fault of a name.
    """
    known = {fault.value: fault for fault in Fault}
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            listed = f" The faults are {', '.join(known)}" if hint else f"; the faults are {', '.join(known)}"
            raise ConfigurationError(f"--faults: there is no fault {name!r}{hint}{listed}")
    return Faults(frozenset(known[name] for name in names), seed)
