"""100 trajectories at once, each of five ops in three levels, interleaved at every await."""

import asyncio
import random
import sys

from report import PROJECT, finish

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op

SAMPLES, ROLLOUTS = 25, 4


async def pause() -> None:
    await asyncio.sleep(random.random() / 100)


@rollout_trace_op
async def agent(owner: str) -> str:
    await pause()
    await asyncio.gather(asyncio.create_task(left(owner)), asyncio.create_task(right(owner)))
    await pause()
    return owner


@rollout_trace_op
async def left(owner: str) -> str:
    await pause()
    return await inner(owner)


@rollout_trace_op
async def right(owner: str) -> str:
    await pause()
    return await asyncio.to_thread(thread, owner)


@rollout_trace_op
async def inner(owner: str) -> str:
    await pause()
    return owner


@rollout_trace_op
def thread(owner: str) -> str:
    return owner


async def rollout(sample_index: int, rollout_n: int) -> None:
    owner = f"{sample_index}/{rollout_n}"
    await pause()
    with rollout_trace_attr(sample_index=sample_index, step=1, rollout_n=rollout_n, name="trajectory"):
        annotate(input=owner, output=await agent(owner))


async def main() -> None:
    await asyncio.gather(*(rollout(sample, n) for sample in range(SAMPLES) for n in range(ROLLOUTS)))


if __name__ == "__main__":
    otel_rollout.init(PROJECT, f"{PROJECT}-experiment")
    asyncio.run(main())
    sys.exit(finish())
