"""Function tools; a file of their own, because verl loads it by path."""

import asyncio
import os

from verl.tools.function_tool import function_tool

import otel_rollout


@function_tool
def add(a: int, b: int) -> str:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return str(a + b)


@function_tool
async def fail(why: str) -> str:
    """Fail.

    Args:
        why: The reason.
    """
    if why.startswith("no answer"):
        await asyncio.sleep(float(why.rsplit(maxsplit=1)[-1]))
        raise TimeoutError(why)
    if why == "the process ends":
        # As a kill does, but with what has ended by then delivered.
        otel_rollout.flush(10)
        os._exit(0)
    raise RuntimeError(why)
