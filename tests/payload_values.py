"""Classes whose instances tests put into payloads, and what a reader sees of a snapshot."""

from __future__ import annotations

import dataclasses
from typing import Any

import attrs
import orjson

from otel_rollout.record import take_snapshot, to_json


def read_payload(span: Any, key: str) -> Any:
    """Return the payload of a span, or of its attributes: a text as it is, JSON as the value."""
    attributes = getattr(span, "attributes", span)
    text = attributes[key]
    is_text = attributes[key.replace(".value", ".mime_type")] == "text/plain"
    return text if is_text else orjson.loads(text)


def read(value: Any) -> Any:
    """Return the JSON of a value's snapshot as Python objects."""
    return orjson.loads(to_json(take_snapshot(value)))


@dataclasses.dataclass(frozen=True)
class Frozen:
    """A frozen dataclass."""

    x: int
    tags: set[str] = dataclasses.field(default_factory=set)


@dataclasses.dataclass
class Slotted:
    """A dataclass with slots."""

    __slots__ = ("x",)
    x: Any


@attrs.define
class Attrs:
    """An attrs class."""

    x: int
    y: Any = None
