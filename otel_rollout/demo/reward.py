"""The verifiable reward: the answer is right or it is not."""

from __future__ import annotations

import math
from collections.abc import Sequence

from otel_rollout import rollout_trace_op

__all__ = ["Verifier", "advantages"]


class Verifier:
    """Compares answers with the dataset's."""

    @rollout_trace_op(kind="EVALUATOR")
    async def score(self, answer: str | None, expected: float) -> float:
        """Return 1.0 for the right number, else 0.0."""
        if answer is None:
            return 0.0
        try:
            number = float(answer)
        except ValueError:
            return 0.0
        return 1.0 if math.isclose(number, expected, rel_tol=1e-6) else 0.0


def advantages(rewards: Sequence[float]) -> list[float]:
    """Return each reward's advantage within its group, as GRPO takes it: (reward - mean) / deviation."""
    mean = sum(rewards) / len(rewards)
    deviation = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / len(rewards))
    return [(reward - mean) / (deviation + 1e-6) for reward in rewards]
