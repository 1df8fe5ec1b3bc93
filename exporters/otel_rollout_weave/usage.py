"""The tokens of calls by model, as Weave sums them: on a model's call its own, on a root the sum of the calls below."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout import semconv
from otel_rollout.facts.span_facts import span_id_of
from otel_rollout.text.sanitize import replace_surrogates

_INPUT: Final = (semconv.USAGE_INPUT_TOKENS, "llm.token_count.prompt", "gen_ai.usage.prompt_tokens")
_OUTPUT: Final = (semconv.USAGE_OUTPUT_TOKENS, "llm.token_count.completion", "gen_ai.usage.completion_tokens")
_MODEL: Final = (
    semconv.RESPONSE_MODEL,
    semconv.REQUEST_MODEL,
    "llm.model_name",
    "embedding.model_name",
    "reranker.model_name",
)
"""OpenTelemetry's names, OpenInference's, and older versions of traceloop's."""
UNKNOWN_MODEL: Final = "usage"
"""Weave's own OTLP ingest calls an unknown model so."""

MAX_COUNT: Final = 2**53
"""A greater number of tokens is an error of the program: a root's sum with it might not fit into JSON's integers."""


class Usage(NamedTuple):
    """The tokens of one call of a model.

    Args:
        model: The model.
        counts: The numbers in Weave's names.
        parent_id: The id of the parent's call.
    """

    model: str
    counts: Mapping[str, int]
    parent_id: str | None


def usage_of(span: ReadableSpan) -> Usage | None:
    """Return the tokens on a span; None if there are none."""
    attributes = span.attributes or {}
    asked, answered = _first_number(attributes, _INPUT), _first_number(attributes, _OUTPUT)
    if asked is None and answered is None:
        return None
    counts = {"requests": 1}
    if asked is not None:
        counts["prompt_tokens"] = asked
    if answered is not None:
        counts["completion_tokens"] = answered
    counts["total_tokens"] = (asked or 0) + (answered or 0)
    model = next((attributes[key] for key in _MODEL if attributes.get(key)), UNKNOWN_MODEL)
    parent = None if span.parent is None else f"{span.parent.span_id:016x}"
    return Usage(replace_surrogates(str(model)), counts, parent)


class Below:
    """The calls below a root: how many succeeded and failed, and their tokens.

    Args:
        success: The number that succeeded.
        error: The number that failed.
    """

    def __init__(self, success: int = 0, error: int = 0) -> None:
        self.success = success
        self.error = error
        self._usages: dict[str, Usage] = {}

    def copy(self) -> Below:
        """Return a copy that can be added to."""
        copied = Below(self.success, self.error)
        copied._usages = dict(self._usages)
        return copied

    def add(self, span: ReadableSpan) -> None:
        """Add the call of a span."""
        if span.status.status_code is StatusCode.ERROR:
            self.error += 1
        else:
            self.success += 1
        usage = usage_of(span)
        if usage is not None:
            self._usages[span_id_of(span)] = usage

    def usage(self) -> dict[str, dict[str, int]]:
        """Return the tokens by model; a client's span inside a model's op counts once."""
        return summed(usage for usage in self._usages.values() if usage.parent_id not in self._usages)


def summed(usages: Iterable[Usage]) -> dict[str, dict[str, int]]:
    """Return the sums of tokens by model."""
    sums: dict[str, dict[str, int]] = {}
    for usage in usages:
        known = sums.setdefault(usage.model, {})
        for name, count in usage.counts.items():
            known[name] = known.get(name, 0) + count
    return sums


def _first_number(attributes: Mapping[str, Any], keys: Iterable[str]) -> int | None:
    return next((value for key in keys if type(value := attributes.get(key)) is int and abs(value) <= MAX_COUNT), None)
