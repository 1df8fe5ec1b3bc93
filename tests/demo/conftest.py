"""What the demo's tests share: a tokenizer, an engine that takes no time, seeds by what they make the policy do."""

from itertools import count

import pytest

from otel_rollout.demo import Behaviour, Policy, SamplingParams, choose_behaviour


@pytest.fixture(scope="session")
def tokenizer():
    pytest.importorskip("tokenizers")
    from otel_rollout.demo import train_tokenizer

    return train_tokenizer()


@pytest.fixture
def fast_engine(monkeypatch):
    monkeypatch.setattr(Policy, "seconds_per_call", 0.0)
    monkeypatch.setattr(Policy, "seconds_per_token", 0.0)


@pytest.fixture
def sampling_that():
    """The sampling parameters that make an untrained policy behave as asked."""

    def find(behaviour: Behaviour) -> SamplingParams:
        candidates = (SamplingParams(temperature=1.0, seed=seed) for seed in count())
        return next(params for params in candidates if choose_behaviour(params, 0) is behaviour)

    return find
