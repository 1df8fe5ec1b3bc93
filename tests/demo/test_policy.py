"""The policy is deterministic, fallible, and learns."""

from collections import Counter

from otel_rollout.demo import Behaviour, SamplingParams, choose_behaviour

PINNED = [
    "CLUMSY",
    "SOLVE",
    "SLIP",
    "MISREMEMBER",
    "GUESS",
    "CLUMSY",
    "SLIP",
    "SOLVE",
    "RAMBLE",
    "MISREMEMBER",
]


def behaviours(steps_trained: int, temperature: float = 1.0) -> Counter[Behaviour]:
    return Counter(choose_behaviour(SamplingParams(temperature, seed), steps_trained) for seed in range(2000))


class TestChooseBehaviour:
    """What the policy does with a problem."""

    def test_is_decided_by_the_seed(self):
        """The same seeds give the same behaviours, in every process."""
        first = [choose_behaviour(SamplingParams(1.0, seed), 0) for seed in range(10)]
        assert [behaviour.name for behaviour in first] == PINNED

    def test_every_weakness_comes_up(self):
        """Whatever can happen does happen when tokens are sampled."""
        assert set(behaviours(0)) == set(Behaviour)

    def test_training_helps(self):
        """After more steps more problems are solved."""
        solved = [behaviours(steps_trained)[Behaviour.SOLVE] for steps_trained in range(4)]
        assert solved == sorted(solved)
        assert solved[0] < solved[3]

    def test_nothing_breaks_at_temperature_zero(self):
        """In validation the policy may be wrong, but no tool, engine or turn limit fails it."""
        assert set(behaviours(0, temperature=0.0)) == {Behaviour.SOLVE, Behaviour.SLIP, Behaviour.GUESS}
