"""The model of verl's turns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from otel_rollout.integrations.verl.generation import model_of


def client(path: Any) -> SimpleNamespace:
    """Return a client with the configuration of verl's entry point."""
    model = SimpleNamespace(path=path)
    return SimpleNamespace(config=SimpleNamespace(actor_rollout_ref=SimpleNamespace(model=model)))


def test_path() -> None:
    """A turn's model is the path that the trainer was configured with."""
    assert model_of(client("Qwen/Qwen3-8B")) == "Qwen/Qwen3-8B"


@pytest.mark.parametrize("value", [client(None), client(""), client(7), SimpleNamespace(config=None), object(), None])
def test_no_path(value: Any) -> None:
    """Without a path in the configuration a turn has no model."""
    assert model_of(value) is None
