"""The reward on a span and its named parts, as one record for all backends."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from otel_rollout import semconv

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

REWARD: Final = "reward"
"""The name of the total."""
FATE: Final = "fate"
OF_TRAINING: Final = {"advantage": semconv.ADVANTAGE, FATE: semconv.FATE}
"""Training's verdicts on the trajectory, by the name of the record."""
MEASURES: Final = {key.removeprefix("rollout."): key for key in semconv.MEASURES}
"""Other facts of training that may come late, which are no record of their own in a backend."""
LATEST: Final = (REWARD, *OF_TRAINING, *MEASURES)
"""The facts of which the latest counts."""
TEXTS: Final = (FATE, "fate_reason")
"""The facts of training that are texts; the others are numbers."""
MAX_PARTS: Final = 64
"""The most parts of a span that become records of a backend; the attribute has them all."""
MAX_NAME_CHARACTERS: Final = 200
MAX_TEXT_CHARACTERS: Final = 1000


class Dated(NamedTuple):
    """A fact with its time: of several values the greatest `Dated` counts, in whatever order they come.

    Args:
        at: The end of the span that has it, in nanoseconds since 1970; 0 of a root.
        value: The value.
    """

    at: int
    value: float | str


class RewardPart(NamedTuple):
    """A reward, or a named part of one.

    Args:
        name: `reward` for the total, `advantage`, `fate`, else the part's name.
        value: A finite number, a boolean, or a text, which backends show as a label.
        explanation: The reason for the value; empty if none was given.
    """

    name: str
    value: float | bool | str
    explanation: str = ""

    @property
    def score_and_label(self) -> tuple[float | None, str | None]:
        """The value as a number and a text: of a boolean 1 or 0 with `true` or `false`; None for what it isn't."""
        if isinstance(self.value, bool):
            return float(self.value), str(self.value).lower()
        return (None, self.value) if isinstance(self.value, str) else (self.value, None)


def reward_parts_of(span: ReadableSpan) -> tuple[RewardPart, ...]:
    """Return the reward on a span, if there is one, its parts, advantage and fate: on the root, or on a later span.

    A part is a number, a boolean, a text, or an object with a `value` and an `explanation`. Parts with other values are
    left to the attribute.
    """
    attributes = span.attributes or {}
    parts: dict[str, RewardPart] = {}
    total = _value(attributes.get(semconv.REWARD))
    if type(total) is float:
        parts[REWARD] = RewardPart(REWARD, total)
    for name, key in OF_TRAINING.items():
        value = _value(attributes.get(key))
        if value is not None:
            parts[name] = RewardPart(name, value, _text(attributes.get(semconv.FATE_REASON)) if name == FATE else "")
    for name, given in _named(attributes.get(semconv.REWARD_PARTS)).items():
        part = _part(name, given)
        if part is not None and len(parts) < MAX_PARTS:
            parts.setdefault(part.name, part)
    return tuple(parts.values())


def _named(text: Any) -> dict[str, Any]:
    if not isinstance(text, str):
        return {}
    try:
        parsed = orjson.loads(text)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _part(name: str, given: Any) -> RewardPart | None:
    explanation: Any = ""
    if isinstance(given, dict):
        given, explanation = given.get("value"), given.get("explanation")
    value = _value(given)
    if value is None or not name.strip():
        return None
    return RewardPart(_shortened(name.strip(), MAX_NAME_CHARACTERS), value, _text(explanation))


def measures_of(span: ReadableSpan) -> dict[str, float | str]:
    """Return the measures on a span, by name: on the root, or on a later span."""
    attributes = span.attributes or {}
    found = {name: _value(attributes.get(key)) for name, key in MEASURES.items() if key in attributes}
    return {name: value for name, value in found.items() if type(value) is (str if name in TEXTS else float)}


def _value(given: Any) -> float | bool | str | None:
    if isinstance(given, bool):
        return given
    if isinstance(given, str):
        return _shortened(given, MAX_TEXT_CHARACTERS) or None
    if isinstance(given, (int, float)):
        # An integer may be beyond a float's range.
        with suppress(OverflowError):
            return float(given) if math.isfinite(given) else None
    return None


def _text(given: Any) -> str:
    return _shortened(given, MAX_TEXT_CHARACTERS) if isinstance(given, str) else ""


def _shortened(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[: characters - 1]}…"
