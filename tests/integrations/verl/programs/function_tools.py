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
    if why.startswith("no answer"):
        await asyncio.sleep(float(why.rsplit(maxsplit=1)[-1]))
        raise TimeoutError(why)
    raise RuntimeError(why)
