"""The policy's tools: a calculator and a lookup table."""

from __future__ import annotations

import ast
import asyncio
import difflib
import operator
from collections.abc import Callable, Mapping

from otel_rollout import rollout_trace_op

MAX_EXPRESSION_LENGTH = 200
MAX_EXPONENT = 64
MAX_MAGNITUDE = 1e15

_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[float], float]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}


class ToolError(Exception):
    """A tool call failed; the policy reads the message."""


class Calculator:
    """Works out an arithmetic expression."""

    name = "calculator"

    @rollout_trace_op(kind="TOOL")
    async def execute(self, argument: str) -> str:
        """Return the value of the expression."""
        await asyncio.sleep(0.002)
        return format_number(calculate(argument))


class Lookup:
    """Finds an entry of a table by its exact name.

    Args:
        table: Each entry's name and value.
        latency: The seconds of an answer.
    """

    name = "lookup"

    def __init__(self, table: Mapping[str, str], latency: float = 0.03) -> None:
        self._table = table
        self._latency = latency

    @rollout_trace_op(kind="TOOL")
    async def execute(self, argument: str) -> str:
        """Return the entry's value."""
        await asyncio.sleep(self._latency)
        value = self._table.get(argument)
        if value is None:
            near = difflib.get_close_matches(argument, self._table, n=1, cutoff=0.4)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ToolError(f"no entry {argument!r}{hint}")
        return value


def calculate(expression: str) -> float:
    """Work out an arithmetic expression without running it as code.

    Args:
        expression: Numbers, parentheses and `+ - * / // % **`.

    Raises:
        ToolError: The text is not arithmetic, or its value is too large.
    """
    if len(expression) > MAX_EXPRESSION_LENGTH:
        raise ToolError(f"the expression is longer than {MAX_EXPRESSION_LENGTH} characters")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError) as error:
        raise ToolError(f"cannot read {expression!r} as arithmetic") from error
    value = _value(tree.body)
    if not abs(value) <= MAX_MAGNITUDE:
        raise ToolError(f"the result of {expression!r} is too large")
    return value


def format_number(value: float) -> str:
    """Write a number as people do: whole numbers without a fraction, others without rounding noise."""
    rounded = round(value, 9)
    return str(int(rounded)) if rounded == int(rounded) else str(rounded)


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return _bounded(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_value(node.operand))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow) and abs(right) > MAX_EXPONENT:
            raise ToolError(f"an exponent above {MAX_EXPONENT} is too large")
        try:
            result = _BINARY[type(node.op)](left, right)
        except (ArithmeticError, ValueError) as error:
            raise ToolError(f"cannot compute {ast.unparse(node)}: {error}") from error
        if isinstance(result, complex):
            raise ToolError(f"{ast.unparse(node)} is not a real number")
        return _bounded(result)
    raise ToolError(f"{ast.unparse(node)!r} is not arithmetic")


def _bounded(value: float) -> float:
    # Bounded at every node, so that no power tower grows to gigabytes on the way.
    if not abs(value) <= MAX_MAGNITUDE:
        raise ToolError("a number in the expression is too large")
    return value
