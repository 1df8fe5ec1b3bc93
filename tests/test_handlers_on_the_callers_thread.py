"""The `except` clauses of the code that runs on the program's threads."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import otel_rollout

PACKAGE = Path(otel_rollout.__file__).parent
CALLERS_CODE = (
    "record",
    "guard",
    "hooks",
    "pipeline.py",
    "config.py",
    "provider_tracer.py",
    "deliver/span_outbox.py",
    "export/outbox.py",
    "export/lane.py",
)
"""Where code runs on the program's threads."""
BROAD = ("Exception", "BaseException")

ALLOWED: dict[str, str] = {
    "guard/log_once.py: call_user_function": "a function that the user gave us; passes what isn't an Exception",
    "hooks/guard.py: call_library": "a library's function: a tokenizer's copy, Ray's requests",
    "record/provider.py: read_sampler": "in init: another package's factory",
    "record/stream.py: write_stream": "raises what came through the pickler, or what that has replaced",
    "record/open_trajectories.py: running_for": "a delivery thread",
    "deliver/span_outbox.py: take_memory": "a delivery thread",
    "deliver/span_outbox.py: _finish": "a delivery thread",
    "export/outbox.py: _run": "a delivery thread",
    "export/outbox.py: _deliver": "a delivery thread",
}
"""The broad clauses that may swallow, with the reason."""
MAX_STATEMENTS = 2
"""A `try` with an `except` that swallows holds the one call that raises it, and perhaps its `return`."""
WIDER: dict[str, str] = {
    "hooks/guard.py: guarded": "one step of an observer",
}


def clauses() -> Iterator[tuple[str, ast.Try, ast.ExceptHandler]]:
    """Yield each clause with its file and function."""
    for place in CALLERS_CODE:
        path = PACKAGE / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            name = file.relative_to(PACKAGE).as_posix()
            for function, statement in tries(ast.parse(file.read_text()), ""):
                for handler in statement.handlers:
                    yield f"{name}: {function}", statement, handler


def tries(node: ast.AST, function: str) -> Iterator[tuple[str, ast.Try]]:
    """Yield each `try` below a node with the function that it is in."""
    for child in ast.iter_child_nodes(node):
        inside = child.name if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) else function
        if isinstance(child, ast.Try):
            yield inside, child
        yield from tries(child, inside)


def names(handler: ast.ExceptHandler) -> list[str]:
    """Return the names of the classes that a clause catches."""
    if handler.type is None:
        return ["BaseException"]
    return [node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)]


def passes(handler: ast.ExceptHandler) -> bool:
    """Return True if the clause ends by raising again."""
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def hands_on(handler: ast.ExceptHandler) -> bool:
    """Return True if the clause gives the exception to the generator that a wrapper stands for."""
    return ast.unparse(handler.body[0]).startswith("step = generator.") and len(handler.body) == 2


class TestClauses:
    """Whose exception it is, is not guessed."""

    def test_no_broad_clause_swallows(self) -> None:
        """A clause of `Exception` or `BaseException` raises again, but for the listed ones."""
        swallowing = {
            place
            for place, _, handler in clauses()
            if set(names(handler)) & set(BROAD) and not passes(handler) and not hands_on(handler)
        }
        assert swallowing == set(ALLOWED)

    def test_named_clauses_are_narrow(self) -> None:
        """A clause of a named class stands around the one call that raises it."""
        wide = Counter(
            place
            for place, statement, handler in clauses()
            if not passes(handler)
            and not set(names(handler)) & set(BROAD)
            and not place.startswith(
                ("record/op.py", "record/provider.py", "record/span_bounds.py", "record/sampling.py")
            )
            and len(statement.body) > MAX_STATEMENTS
        )
        assert set(wide) <= set(WIDER)
