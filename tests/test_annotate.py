"""`annotate`: what is learnt on the way stands on the trajectory's root."""

from __future__ import annotations

import asyncio
import enum
import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op, semconv
from otel_rollout.hooks.carrier import extract, inject
from otel_rollout.testing import InMemorySpanExporter
from tests.ops import recorded

pytestmark = pytest.mark.every_python


def root_attributes(exporter: InMemorySpanExporter) -> dict[str, Any]:
    """Return the attributes of the last root."""
    assert otel_rollout.flush(60)
    attributes: dict[str, Any] = [span for span in exporter.as_dicts() if span["parent_id"] is None][-1]["attributes"]
    return attributes


class Word(str, enum.Enum):
    """A text that is an enum."""

    YES = "yes"


class TestAnnotate:
    """Values that can be annotated."""

    def test_what_verls_plugin_knows(self, rollout_spans: InMemorySpanExporter) -> None:
        """Any program may set the names that the table lists as annotations."""
        known = {row.key: 1 for row in semconv.ANNOTATIONS}
        with rollout_trace_attr(7, 1, 0):
            annotate(**known)
        assert known.items() <= root_attributes(rollout_spans).items()

    def test_everything(self, rollout_spans: InMemorySpanExporter) -> None:
        """Reward, status, input, output and attributes of one's own stand on the root, and in its metadata."""
        with rollout_trace_attr(7, 1, 0):
            annotate(reward=1, input=[{"role": "user", "content": "why"}])
            annotate(status="truncated", output={"answer": 42}, scorer="exact", tries=3, late=False, share=0.5)
        tags = {
            "step": 1,
            "sample_index": 7,
            "rollout_n": 0,
            "validate": False,
            "experiment_name": "test-experiment",
        }
        own = {"scorer": "exact", "tries": 3, "late": False, "share": 0.5}
        assert otel_rollout.flush(60)
        assert rollout_spans.as_dicts() == [
            {
                "name": "rollout_trace",
                "trace_id": 1,
                "span_id": 1,
                "parent_id": None,
                "start_time": 1,
                "end_time": 2,
                "status": "UNSET",
                "attributes": {
                    "openinference.span.kind": "AGENT",
                    "gen_ai.operation.name": "invoke_agent",
                    "gen_ai.agent.name": "rollout_trace",
                    "gen_ai.conversation.id": f"{1:032x}",
                    "session.id": "s7 · step 1 · test-project/test-experiment",
                    **{f"rollout.{key}": value for key, value in tags.items()},
                    "rollout.status": "truncated",
                    "rollout.reward": 1.0,
                    "input.value": "why",
                    "input.mime_type": "text/plain",
                    "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "why"}]}],
                    "output.value": {"answer": 42},
                    "output.mime_type": "application/json",
                    **own,
                    "metadata": {**tags, "status": "truncated", "reward": 1.0, **own},
                },
            }
        ]

    def test_from_inside_an_op(self, rollout_spans: InMemorySpanExporter) -> None:
        """However deep it is called, in an op or a task, `annotate` writes on the root."""

        @rollout_trace_op
        async def judge() -> None:
            annotate(reward=0.5)

        async def main() -> None:
            with rollout_trace_attr(1):
                await asyncio.create_task(judge())

        asyncio.run(main())
        assert root_attributes(rollout_spans)["rollout.reward"] == 0.5
        assert "rollout.reward" not in rollout_spans.as_dicts()[0]["attributes"]

    def test_last_value_counts(self, rollout_spans: InMemorySpanExporter) -> None:
        """A later annotation replaces an earlier one."""
        with rollout_trace_attr(1):
            annotate(reward=1.0, output="first", scorer="a")
            annotate(reward=0.0, output="second", scorer="b")
        attributes = root_attributes(rollout_spans)
        assert (attributes["rollout.reward"], attributes["output.value"], attributes["scorer"]) == (0.0, "second", "b")

    def test_input_is_a_snapshot(self, rollout_spans: InMemorySpanExporter) -> None:
        """Annotations are copied at once."""
        messages = ["question"]
        with rollout_trace_attr(1):
            annotate(input=messages)
            messages.append("answer")
        assert root_attributes(rollout_spans)["input.value"] == ["question"]

    def test_counts_of_ones_own(self, rollout_spans: InMemorySpanExporter) -> None:
        """A trainer that knows the turns and tokens better than the ops do can say so."""
        with rollout_trace_attr(1):
            annotate(**{"rollout.turns": 9, "rollout.input_tokens": 100})
        attributes = root_attributes(rollout_spans)
        assert (attributes["rollout.turns"], attributes["metadata"]["turns"]) == (9, 9)

    @pytest.mark.parametrize(
        ("value", "attribute"),
        [
            (np.float32(0.5), 0.5),
            (np.float64(0.5), 0.5),
            (np.int64(3), 3),
            (np.bool_(True), True),
            (np.array(2), 2),
            (Word.YES, "yes"),
            ("\ud800", "?"),
            (["a", "b"], ("a", "b")),
            ((1, 2), (1, 2)),
            ([np.float32(0.5), 1.5], (0.5, 1.5)),
        ],
    )
    def test_types(self, rollout_spans: InMemorySpanExporter, value: Any, attribute: Any) -> None:
        """Scalars of numpy, enums and lists become what every backend takes."""
        with rollout_trace_attr(1):
            annotate(value=value)
        recorded = root_attributes(rollout_spans)["value"]
        assert recorded == attribute
        assert type(recorded) is type(attribute)

    @pytest.mark.parametrize(
        ("reward", "number"), [(1, 1.0), (True, 1.0), (np.float32(0.5), 0.5), (np.array([0.25]), 0.25), (-2.5, -2.5)]
    )
    def test_rewards(self, rollout_spans: InMemorySpanExporter, reward: Any, number: float) -> None:
        """Any number is a reward, also that of a numpy array with one element."""
        with rollout_trace_attr(1):
            annotate(reward=reward)
        recorded = root_attributes(rollout_spans)["rollout.reward"]
        assert (recorded, type(recorded)) == (number, float)

    @pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("name", ["reward", "advantage"])
    @pytest.mark.parametrize("is_late", [False, True])
    def test_a_number_that_is_not_finite(self, rollout_spans, caplog, name, number, is_late) -> None:
        """It is kept and not counted as lost, and the log says what it counts as; in the metadata it is null."""
        with rollout_trace_attr(1) as trajectory:
            if not is_late:
                annotate(**{name: number})
        if is_late:
            trajectory.annotate(**{name: number})
        assert otel_rollout.flush(60)
        attributes = rollout_spans.as_dicts()[-1]["attributes"]
        assert str(attributes[f"rollout.{name}"]) == str(number)
        assert is_late or attributes["metadata"][name] is None
        assert not otel_rollout.stats().lost_annotations
        assert f"annotate({name}={number}): it is kept, but counts as no {name}" in caplog.text

    def test_long_text(self, rollout_spans: InMemorySpanExporter) -> None:
        """A long text is an attribute, and is left out of the metadata."""
        with rollout_trace_attr(1):
            annotate(notes="x" * 5000)
        attributes = root_attributes(rollout_spans)
        assert attributes["notes"] == "x" * 5000
        assert "notes" not in attributes["metadata"]


STATUSES = "a status is one of completed, error, cancelled, truncated"
ATTRIBUTE = "an attribute is a text, a number, a boolean or a list of one of these"


class Hostile:
    """A value that raises whenever it is looked at."""

    def item(self) -> Any:
        """Raise."""
        raise RuntimeError

    def __float__(self) -> float:
        raise RuntimeError

    def __repr__(self) -> str:
        raise RuntimeError

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


class TestWrongTypes:
    """Values that can't be recorded: one line in the log, never an exception."""

    @pytest.mark.parametrize(
        ("annotation", "message"),
        [
            ({"reward": "high"}, "a reward is a number, not str"),
            ({"reward": Decimal("sNaN")}, "a reward is a number, not Decimal"),
            ({"reward": Fraction(10**400)}, "a reward is a number, not Fraction"),
            ({"reward": "1.0"}, "a reward is a number, not str"),
            ({"reward": [1.0]}, "a reward is a number, not list"),
            ({"reward": 10**400}, "a reward is a number, not int"),
            ({"reward": np.ones(3)}, "a reward is a number, not ndarray"),
            ({"reward": Hostile()}, "a reward is a number, not Hostile"),
            ({"rewards": 1.0}, "the parts of a reward are a mapping of names to values, not float"),
            ({"rewards": [("format", 1.0)]}, "the parts of a reward are a mapping of names to values, not list"),
            ({"status": "done"}, f"{STATUSES}, not 'done'"),
            ({"status": Hostile()}, f"{STATUSES}, not Hostile"),
            ({"extra": {"a": 1}}, f"{ATTRIBUTE}, not dict"),
            ({"extra": [1, "a"]}, f"{ATTRIBUTE}, not list"),
            ({"extra": 2**70}, f"{ATTRIBUTE}, not int"),
            ({"extra": Hostile()}, f"{ATTRIBUTE}, not Hostile"),
            ({"rollout.step": 5}, "this name is reserved"),
            ({"sample_index": 5}, "this name is reserved"),
            ({"rollout": 5}, "this name is reserved"),
            ({"error": "bad"}, "this name is reserved"),
            ({"metadata": "{}"}, "this name is reserved"),
        ],
        ids=lambda value: None if isinstance(value, str) else str(next(iter(value))),
    )
    def test_one_line_in_the_log(
        self,
        rollout_spans: InMemorySpanExporter,
        caplog: pytest.LogCaptureFixture,
        annotation: dict[str, Any],
        message: str,
    ) -> None:
        """A value that can't be recorded is left out with one line in the log, however often it happens."""
        with rollout_trace_attr(1):
            annotate(**annotation)
            annotate(**annotation, kept=True)
        name = next(iter(annotation))
        assert [entry.getMessage() for entry in caplog.records] == [f"annotate({name}=…): {message}; it is ignored"]
        assert caplog.records[0].levelname == "WARNING"
        attributes = root_attributes(rollout_spans)
        assert attributes["kept"] is True
        assert set(attributes) == {
            "openinference.span.kind",
            "gen_ai.operation.name",
            "gen_ai.agent.name",
            "gen_ai.conversation.id",
            "session.id",
            "rollout.sample_index",
            "rollout.validate",
            "rollout.experiment_name",
            "rollout.status",
            "metadata",
            "kept",
        }
        assert attributes["rollout.sample_index"] == 1
        assert otel_rollout.stats().internal_errors == {}


class TestRewardParts:
    """The named parts of a reward."""

    def test_parts_are_one_text(self, rollout_spans: InMemorySpanExporter) -> None:
        """Parts are one JSON text on the root beside the reward, and not in its metadata."""
        with rollout_trace_attr(1):
            annotate(reward=1.0, rewards={"format": np.float32(0.5), "correct": True, "verdict": Word.YES})
        attributes = root_attributes(rollout_spans)
        assert attributes["rollout.reward"] == 1.0
        assert json.loads(attributes["rollout.reward_parts"]) == {"format": 0.5, "correct": True, "verdict": "yes"}
        assert "reward_parts" not in attributes["metadata"]

    def test_later_parts_are_added(self, rollout_spans: InMemorySpanExporter) -> None:
        """A second call adds its parts and replaces those of the same name; each is a copy."""
        parts = {"format": 0.0}
        with rollout_trace_attr(1):
            annotate(rewards=parts)
            parts["format"] = 9.0
            annotate(rewards={"correct": 1, "judge": {"value": 0.5, "explanation": "half right"}})
            annotate(rewards={"correct": 0})
        assert json.loads(root_attributes(rollout_spans)["rollout.reward_parts"]) == {
            "format": 0.0,
            "correct": 0,
            "judge": {"value": 0.5, "explanation": "half right"},
        }

    def test_numbers_are_no_secrets(self, rollout_spans: InMemorySpanExporter) -> None:
        """A part whose name sounds like a secret's keeps its number; a secret in a text is redacted."""
        with rollout_trace_attr(1):
            annotate(rewards={"token_f1": 0.25, "judge": {"value": 1, "explanation": "password=hunter2 was given"}})
        text = root_attributes(rollout_spans)["rollout.reward_parts"]
        assert json.loads(text)["token_f1"] == 0.25
        assert "hunter2" not in text

    def test_too_many_are_left_out(self, rollout_spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture) -> None:
        """Parts beyond a thousand are left out with one line in the log; the earlier ones stay."""
        with rollout_trace_attr(1):
            annotate(rewards={"format": 1.0})
            annotate(rewards={f"part {number}": number for number in range(1000)})
        assert json.loads(root_attributes(rollout_spans)["rollout.reward_parts"]) == {"format": 1.0}
        [line] = [entry.getMessage() for entry in caplog.records]
        assert line == "annotate(rewards=…): a reward has at most 1,000 parts; it is ignored"


class TestElsewhere:
    """Annotations without a trajectory."""

    def test_outside_a_trajectory(self, rollout_spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture) -> None:
        """Outside a trajectory one line in the log says so, also inside an op that has none around it."""

        @rollout_trace_op
        def op() -> None:
            annotate(reward=1.0)

        annotate(reward=1.0)
        op()
        assert [entry.getMessage() for entry in caplog.records] == [
            "annotate() was called outside rollout_trace_attr: call it in the block; the value is lost"
        ]
        assert "rollout.reward" not in root_attributes(rollout_spans)

    def test_after_the_end(self, rollout_spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture) -> None:
        """What a task says that outlives its trajectory is a span below the root."""

        async def judge(ended: asyncio.Event) -> None:
            await ended.wait()
            annotate(reward=1.0)

        async def main() -> None:
            ended = asyncio.Event()
            with rollout_trace_attr(1):
                task = asyncio.create_task(judge(ended))
                await asyncio.sleep(0)
            ended.set()
            await task

        asyncio.run(main())
        assert not caplog.records
        assert "rollout.reward" not in root_attributes(rollout_spans)
        root, late = rollout_spans.as_dicts()
        assert (late["name"], late["parent_id"]) == ("annotate", root["span_id"])
        assert late["attributes"]["rollout.reward"] == 1.0

    def test_in_silence(self, rollout_spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture) -> None:
        """In a silenced trajectory `annotate` does nothing and logs nothing."""
        with rollout_trace_attr(1, trace=False):
            annotate(reward="wrong")  # type: ignore[arg-type]
        assert caplog.records == []

    def test_while_tracing_is_off(self, caplog: pytest.LogCaptureFixture) -> None:
        """While tracing is off, `annotate` does nothing and says nothing."""
        annotate(reward="wrong")  # type: ignore[arg-type]
        assert caplog.records == []


class TestManyAttributes:
    """More annotations than a span has room for."""

    def test_the_reward_is_never_pushed_out(self, rollout_spans):
        """Beyond 128 attributes the last annotations are dropped; reward, status and metadata are there."""
        with otel_rollout.rollout_trace_attr(sample_index=1):
            otel_rollout.annotate(**{f"key{number}": number for number in range(200)})
            otel_rollout.annotate(reward=1.0)
        assert otel_rollout.flush()

        attributes = rollout_spans.as_dicts()[0]["attributes"]
        assert attributes["rollout.reward"] == 1.0
        assert attributes["rollout.status"] == "completed"
        assert attributes["metadata"]["reward"] == 1.0

    @pytest.mark.parametrize("key", ["rollout.reward.format", "metadata.x", "input.value", "session.id"])
    def test_names_with_a_meaning_are_left_out(self, rollout_spans, caplog, key):
        """A name that is ours, or stands below one of ours, is not set, and the log says so."""
        with otel_rollout.rollout_trace_attr(sample_index=1):
            otel_rollout.annotate(reward=1.0, **{key: "mine"}, source="kept")
        assert otel_rollout.flush()

        attributes = rollout_spans.as_dicts()[0]["attributes"]
        assert "mine" not in str(attributes)
        assert attributes["source"] == "kept"
        assert [record.getMessage() for record in caplog.records] == [
            f"annotate({key}=…): this name is reserved; it is ignored"
        ]


class TestMisspelt:
    """Attributes with nearly the name of an argument."""

    @pytest.mark.parametrize(
        ("name", "meant"),
        [
            ("rewrad", "reward"),
            ("Reward_", "reward"),
            ("advantges", None),
            ("advantge", "advantage"),
            ("ouput", "output"),
        ],
    )
    def test_a_near_miss(self, rollout_spans, caplog, name, meant):
        """One letter or one swap away: one warning asks, and the value is an attribute all the same."""
        for _ in range(2):
            with rollout_trace_attr(sample_index=1):
                annotate(**{name: 1})

        root, _ = recorded(rollout_spans)
        assert root["attributes"][name] == 1
        asked = [f"annotate({name}=…): did you mean {meant}? It is kept as an attribute"]
        assert caplog.messages == (asked if meant else [])

    @pytest.mark.parametrize("name", ["rate", "state", "score", "reward_2", "reward_mean", "my_reward", "outcome"])
    def test_names_of_ones_own(self, rollout_spans, caplog, name):
        """Other words are attributes, without a word."""
        with rollout_trace_attr(sample_index=1):
            annotate(**{name: 1})

        assert recorded(rollout_spans)[0]["attributes"][name] == 1
        assert caplog.messages == []


class TestLimit:
    """The limit of attributes of a span."""

    def test_more_than_fit(self, rollout_spans, caplog):
        """Attributes beyond the limit are dropped, counted on the root, and reported once with the variable's name."""
        with rollout_trace_attr(sample_index=1):
            annotate(**{f"metric_{number}": number for number in range(200)})
        otel_rollout.flush(10)
        (root,) = rollout_spans.spans
        kept = sum(key.startswith("metric_") for key in root.attributes)
        assert root.dropped_attributes == 200 - kept
        assert "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT" in caplog.text


class TestExtracted:
    """A part of a trajectory in another process."""

    def test_inside_extract(self, rollout_spans):
        """The root is in the other process: what is said here is a span below the place of the carrier."""
        with rollout_trace_attr(sample_index=1):
            carrier = inject()
        with extract(carrier):
            annotate(reward=1.0)
        otel_rollout.flush(10)
        root, late = rollout_spans.as_dicts()
        assert (late["parent_id"], late["attributes"]["rollout.reward"]) == (root["span_id"], 1.0)
