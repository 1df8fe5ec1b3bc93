"""One training step and a validation pass, as a user would write them; only the environment says where traces go.

Two prompts with three rollouts each at step 7. Of prompt 12, the last rollout fails; of prompt "uid-a", the first is
cut short and the last is cancelled.
"""

import asyncio
import sys
from contextlib import suppress

from report import PROJECT, finish

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op

ROLLOUTS = 3


@rollout_trace_op(kind="LLM", name="generate")
async def generate(messages: list, model: str = "toy-1", temperature: float = 0.7) -> dict:
    await asyncio.sleep(0.001)
    turn = len(messages)
    return {"text": f"turn {turn}: 8 → 9 = “72”", "prompt_ids": [1, 2, turn], "response_ids": [7, 2**31, turn]}


@rollout_trace_op(kind="TOOL")
def calculator(expression: str) -> float:
    left, right = expression.split("*")
    return float(left) * float(right)


@rollout_trace_op(kind="TOOL")
async def lookup(word: str) -> str:
    await asyncio.sleep(0)
    raise KeyError(word)


class Agent:
    """An agent loop of two turns."""

    @rollout_trace_op
    async def run(self, question: str, rollout_n: int) -> str:
        """Ask, use the tools, ask again."""
        messages = [{"role": "user", "content": question}]
        await generate(messages)
        messages.append({"role": "assistant", "content": "…"})
        calculator("8*9")
        with suppress(KeyError):
            await lookup("gros")
        reply = await generate(messages)
        return f"{reply['text']} ({rollout_n})"


class PolicyError(RuntimeError):
    """What the failing rollout raises."""


async def rollout(sample_index: object, rollout_n: int, *, validate: bool = False) -> None:
    question = f"What is 8 → 9? [{sample_index}/{rollout_n}]"
    with rollout_trace_attr(
        sample_index=sample_index, step=7, rollout_n=rollout_n, name="trajectory", validate=validate
    ):
        annotate(input=question)
        answer = await Agent().run(question, rollout_n)
        if (sample_index, rollout_n) == (12, 2):
            raise PolicyError("the policy gave up")
        if (sample_index, rollout_n) == ("uid-a", 2):
            raise asyncio.CancelledError
        if (sample_index, rollout_n) == ("uid-a", 0):
            annotate(status="truncated")
        annotate(reward=0.25 * rollout_n, output=answer, scorer="exact")


async def main() -> None:
    training = [rollout(sample, n) for sample in (12, "uid-a") for n in range(ROLLOUTS)]
    await asyncio.gather(*training, return_exceptions=True)
    await rollout(12, 0, validate=True)


if __name__ == "__main__":
    otel_rollout.init(PROJECT, f"{PROJECT}-experiment")
    asyncio.run(main())
    sys.exit(finish())
