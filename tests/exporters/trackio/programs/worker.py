"""A rollout worker: traces some trajectories to trackio, and says what became of them.

Its arguments are the project, the number of trajectories, and `end`, or `hang` for one that never ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading

import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op


@rollout_trace_op(kind="LLM")
async def generate(messages: list[dict[str, str]]) -> dict[str, str]:
    """Answer."""
    await asyncio.sleep(0)
    return {"role": "assistant", "content": "51"}


async def trajectory(number: int) -> None:
    with rollout_trace_attr(sample_index=number, step=1, rollout_n=0, name="agent_loop"):
        await generate([{"role": "user", "content": "17 * 3"}])
        otel_rollout.annotate(reward=1.0)


async def main(count: int, *, hangs: bool) -> None:
    await asyncio.gather(*(trajectory(number) for number in range(count)))
    if hangs:
        with rollout_trace_attr(sample_index=99, step=1, rollout_n=0, name="agent_loop"):
            await generate([{"role": "user", "content": "Is this stored?"}])
            is_flushed = otel_rollout.flush(200)
            say(is_flushed)
            threading.Event().wait()


def say(is_whole: bool) -> None:
    stats = otel_rollout.stats().exporters["trackio"]
    heavy = [name for name in sys.modules if name.partition(".")[0] in ("trackio", "huggingface_hub", "gradio_client")]
    told = {"is_whole": is_whole, "delivered": stats.delivered, "queued": stats.queued, "lost": dict(stats.lost)}
    sys.stdout.write(json.dumps({**told, "heavy": heavy}) + "\n")
    sys.stdout.flush()


project, count, end = sys.argv[1], int(sys.argv[2]), sys.argv[3]
otel_rollout.init(project, "exp-1", backend="trackio")
asyncio.run(main(count, hangs=end == "hang"))
say(otel_rollout.shutdown(200))
