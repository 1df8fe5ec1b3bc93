"""A minimal agent loop, traced: `python examples/minimal_agent_loop.py`.

The traces go where OTEL_TRACES_EXPORTER says (mlflow, weave, otlp), or to the screen. A comment marks each line that
is there for tracing.
"""

import asyncio
import os

import otel_rollout  # 1
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op  # 2


class Agent:
    """Asks a model, which asks a tool."""

    @rollout_trace_op(kind="LLM")  # 3
    async def generate(self, messages):
        """Return the model's next message."""
        await asyncio.sleep(0.05)  # stands for your inference engine
        if messages[-1]["role"] == "tool":
            return {"role": "assistant", "content": messages[-1]["content"]}
        return {"role": "assistant", "tool_call": {"name": "multiply", "arguments": {"a": 6, "b": 7}}}

    @rollout_trace_op(kind="TOOL")  # 4
    async def multiply(self, a, b):
        """Return the product."""
        return str(a * b)

    async def run(self, question):
        """Return the answer to a question."""
        messages = [{"role": "user", "content": question}]
        while "content" not in messages[-1] or messages[-1]["role"] != "assistant":
            messages.append(await self.generate(messages))
            if call := messages[-1].get("tool_call"):
                messages.append({"role": "tool", "content": await self.multiply(**call["arguments"])})
        return messages[-1]["content"]


async def rollout(question, expected, step, sample_index, rollout_n):
    with rollout_trace_attr(sample_index=sample_index, step=step, rollout_n=rollout_n, name="agent_loop"):  # 5
        answer = await Agent().run(question)
        annotate(input=question, output=answer, reward=float(answer == expected))  # 6


async def main():
    backend = os.environ.get("OTEL_TRACES_EXPORTER", "console")
    otel_rollout.init("minimal-agent-loop", "first-run", backend=backend)  # 7
    await asyncio.gather(*(rollout("What is 6 times 7?", "42", 1, 0, n) for n in range(4)))
    delivered = otel_rollout.flush(timeout=30)  # 8
    print(otel_rollout.stats())  # 9
    return 0 if delivered else 1


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
