"""Calls of a language model."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op
from otel_rollout.testing import InMemorySpanExporter
from tests.ops import recorded

pytestmark = pytest.mark.every_python


class TestLlmOps:
    """Calls of a language model."""

    def test_tokens_and_turns(self, rollout_spans: InMemorySpanExporter) -> None:
        """An LLM op shows model and tokens, and its trajectory counts turns and tokens."""

        @rollout_trace_op(name="generate", kind="LLM")
        def generate(prompt_ids: list[int], model: str) -> dict[str, Any]:
            return {"token_ids": [7, 8], "stop_reason": "length"}

        with rollout_trace_attr(1, 2, 3):
            generate([1, 2, 3], model="policy")
            generate([1, 2, 3, 7, 8, 4], model="policy")
        first, _, root = recorded(rollout_spans)
        assert first["attributes"] == {
            "openinference.span.kind": "LLM",
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "policy",
            "gen_ai.usage.input_tokens": 3,
            "gen_ai.usage.output_tokens": 2,
            "gen_ai.response.finish_reasons": ("length",),
            "input.value": {"prompt_ids": [1, 2, 3], "model": "policy"},
            "input.mime_type": "application/json",
            "output.value": {"token_ids": [7, 8], "stop_reason": "length"},
            "output.mime_type": "application/json",
            "rollout.turn": 1,
            "rollout.step": 2,
            "rollout.sample_index": 1,
            "rollout.rollout_n": 3,
            "rollout.validate": False,
            "rollout.experiment_name": "test-experiment",
        }
        totals = {"rollout.turns": 2, "rollout.input_tokens": 9, "rollout.output_tokens": 4}
        assert {key: root["attributes"][key] for key in totals} == totals

    def test_llm_op_inside_an_llm_op(self, rollout_spans: InMemorySpanExporter) -> None:
        """An LLM op that calls another, as a client over a client does, is one turn and counts its tokens once."""

        @rollout_trace_op(name="inner", kind="LLM")
        async def inner(prompt_ids: list[int]) -> dict[str, Any]:
            return {"token_ids": [7]}

        @rollout_trace_op(name="outer", kind="LLM")
        async def outer(prompt_ids: list[int]) -> dict[str, Any]:
            return await inner(prompt_ids)

        with rollout_trace_attr(1):
            asyncio.run(outer([1, 2]))
        *_, root = recorded(rollout_spans)
        totals = {"rollout.turns": 1, "rollout.input_tokens": 2, "rollout.output_tokens": 1}
        assert {key: root["attributes"][key] for key in totals} == totals

    def test_failed_llm_op(self, rollout_spans: InMemorySpanExporter) -> None:
        """An LLM op that raises still shows the model and its input tokens, and counts as a turn."""

        @rollout_trace_op(name="generate", kind="LLM")
        def generate(prompt_ids: list[int], model: str) -> None:
            raise TimeoutError

        with rollout_trace_attr(1), pytest.raises(TimeoutError):
            generate([1, 2], "policy")
        span, root = recorded(rollout_spans)
        assert (span["attributes"]["gen_ai.request.model"], span["attributes"]["gen_ai.usage.input_tokens"]) == (
            "policy",
            2,
        )
        assert root["attributes"]["rollout.turns"] == 1

    @pytest.mark.parametrize("token2text", [True, False])
    def test_tokenizer_that_can_not_be_looked_at(self, token2text: bool) -> None:
        """An op of an object whose `tokenizer` raises is traced all the same."""

        class Policy:
            @property
            def tokenizer(self) -> Any:
                raise RuntimeError("not loaded yet")

            @rollout_trace_op(name="generate", kind="LLM")
            def generate(self, prompt_ids: list[int]) -> list[int]:
                return prompt_ids

        exporter = InMemorySpanExporter()
        otel_rollout.init("project", "experiment", exporter, token2text)
        assert Policy().generate([1]) == [1]
        assert [span["attributes"]["output.value"] for span in recorded(exporter)] == [[1]]


_LOCK_HELD = """
import _imp
import sys

import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op
from otel_rollout.testing import InMemorySpanExporter

@rollout_trace_op(kind="LLM")
def generate(prompt, answer):
    return answer

exporter = InMemorySpanExporter()
otel_rollout.init("project", "experiment", exporter)
with rollout_trace_attr(0, 0, 0):
    generate("hello", "hi")
assert otel_rollout.flush(60)
_imp.acquire_lock()
with rollout_trace_attr(0, 0, 1):
    generate("<|im_start|>user\\nhello<|im_end|>\\n<|im_start|>assistant\\n", "hi")
    generate("hello", [{"choices": [{"delta": {"content": "hi"}}]}])
assert otel_rollout.flush(60)
_imp.release_lock()
print(len(exporter.as_dicts()))
"""


def test_delivery_imports_nothing_late() -> None:
    """Spans are delivered while the import lock is held, as an alarm that strikes an import leaves it."""
    ended = subprocess.run([sys.executable, "-c", _LOCK_HELD], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.stdout, ended.stderr) == ("5\n", "")
