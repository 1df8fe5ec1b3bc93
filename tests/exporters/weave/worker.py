"""A rollout worker: traces some trajectories to Weave, and says what became of them.

Its arguments are the project, the number of trajectories, and how long a text each op returns.
"""

import asyncio
import json
import sys

import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op


class AgentLoop:
    """Two ops, one inside the other."""

    @rollout_trace_op
    async def run(self, prompt: str, size: int) -> dict[str, str]:
        """Answer a prompt."""
        return {"answer": await self.generate([{"role": "user", "content": prompt}], size)}

    @rollout_trace_op(kind="LLM")
    async def generate(self, messages: list[dict[str, str]], size: int) -> str:
        """Return a text of this size."""
        await asyncio.sleep(0)
        return "x" * size


async def trajectory(number: int, size: int) -> None:
    with rollout_trace_attr(sample_index=number, step=1, rollout_n=0, name="agent_loop"):
        await AgentLoop().run("2+2", size)
        otel_rollout.annotate(reward=1.0)


async def main(count: int, size: int) -> None:
    await asyncio.gather(*(trajectory(number, size) for number in range(count)))


project, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
otel_rollout.init(project, "exp-1")
asyncio.run(main(count, size))
is_whole = otel_rollout.shutdown(60)
weave_modules = [name for name in sys.modules if name.partition(".")[0] in ("weave", "wandb")]
sys.stdout.write(json.dumps({"is_whole": is_whole, "weave_modules": weave_modules}))
