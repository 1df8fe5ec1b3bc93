"""Spans as Phoenix gives them back, put together to trees."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Node", "trees"]


@dataclass
class Node:
    """One span and the spans inside it, in the order in which they started."""

    span: dict[str, Any]
    children: list[Node] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The span's name."""
        return self.span["name"]

    @property
    def attributes(self) -> dict[str, Any]:
        """Its attributes, by their dotted keys."""
        return self.span["attributes"]

    def shape(self) -> Any:
        """Return the tree as nested lists of (name, kind, status code, children)."""
        return (
            self.name,
            self.span["span_kind"],
            self.span["status_code"],
            [child.shape() for child in self.children],
        )

    def walk(self) -> Iterator[Node]:
        """Yield this node and all under it."""
        yield self
        for child in self.children:
            yield from child.walk()


def trees(spans: Iterable[dict[str, Any]]) -> dict[str, Node]:
    """Return the tree of each trace by its trace id.

    Raises:
        AssertionError: A trace has not exactly one root, a span's parent is missing, or a span stands there twice.
    """
    by_trace: dict[str, dict[str, Node]] = defaultdict(dict)
    for span in sorted(spans, key=lambda span: span["start_time"]):
        context = span["context"]
        assert context["span_id"] not in by_trace[context["trace_id"]], f"twice: {span['name']}"
        by_trace[context["trace_id"]][context["span_id"]] = Node(span)
    roots: dict[str, Node] = {}
    for trace_id, nodes in by_trace.items():
        for node in nodes.values():
            parent = node.span["parent_id"]
            if parent is not None:
                assert parent in nodes, f"{node.name} of trace {trace_id} has no parent there"
                nodes[parent].children.append(node)
            else:
                assert trace_id not in roots, f"trace {trace_id} has two roots: {roots[trace_id].name}, {node.name}"
                roots[trace_id] = node
        assert trace_id in roots, f"trace {trace_id} has no root"
    return roots
