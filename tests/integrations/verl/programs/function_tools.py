"""Function tools; a file of their own, because verl loads it by path."""

import asyncio

from verl.tools.function_tool import function_tool


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
    raise RuntimeError(why)


@function_tool
async def wait(seconds: float) -> str:
    """Wait for an answer that doesn't come.

    Args:
        seconds: How long.
    """
    await asyncio.sleep(seconds)
    raise TimeoutError(f"no answer in {seconds} s")
