"""`rollout_trace_attr`: one trajectory is one trace, with its tags, its group and its outcome on the root."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op
from otel_rollout.testing import InMemorySpanExporter, span_tree
from tests.ops import recorded

pytestmark = pytest.mark.every_python


def root_record(tags: dict[str, Any], session: str | None, **changes: Any) -> dict[str, Any]:
    """Return the whole record of the only root so far, with nothing inside.

    Args:
        tags: The tags that were given, by their short names.
        session: The session id.
        **changes: Other fields of the record; `attributes` are added, `metadata` too.
    """
    tags = {"validate": False, "experiment_name": "test-experiment", **tags}
    outcome = {"status": "completed", **changes.pop("metadata", {})}
    attributes = {
        "openinference.span.kind": "AGENT",
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": changes.get("name", "rollout_trace"),
        "gen_ai.conversation.id": f"{1:032x}",
        **{f"rollout.{key}": value for key, value in tags.items()},
        "rollout.status": outcome["status"],
        "metadata": {**tags, **outcome},
        **changes.pop("attributes", {}),
    }
    if session is not None:
        attributes["session.id"] = session
    ids = {"trace_id": 1, "span_id": 1, "parent_id": None, "start_time": 1, "end_time": 2, "status": "UNSET"}
    return {"name": "rollout_trace", **ids, "attributes": attributes, **changes}


@rollout_trace_op(name="op")
def op(value: int = 0) -> int:
    """Return the value."""
    return value


class TestRoot:
    """The attributes of a trajectory's root."""

    def test_trajectory_with_an_op(self, rollout_spans: InMemorySpanExporter) -> None:
        """The op stands under the root with the same tags; the root comes last, with status, group and metadata."""
        with rollout_trace_attr(7, 3, 1, name="agent"):
            op(5)
        tags = {
            "rollout.step": 3,
            "rollout.sample_index": 7,
            "rollout.rollout_n": 1,
            "rollout.validate": False,
            "rollout.experiment_name": "test-experiment",
        }
        assert recorded(rollout_spans) == [
            {
                "name": "op",
                "trace_id": 1,
                "span_id": 2,
                "parent_id": 1,
                "start_time": 2,
                "end_time": 3,
                "status": "UNSET",
                "attributes": {
                    "openinference.span.kind": "CHAIN",
                    "input.value": {"value": 5},
                    "input.mime_type": "application/json",
                    "output.value": 5,
                    "output.mime_type": "application/json",
                    **tags,
                },
            },
            root_record(
                {"step": 3, "sample_index": 7, "rollout_n": 1},
                "s7 · step 3 · test-project/test-experiment",
                name="agent",
                end_time=4,
            ),
        ]

    def test_nothing_given(self, rollout_spans: InMemorySpanExporter) -> None:
        """A trajectory with no tags has none of them, and no group."""
        with rollout_trace_attr():
            pass
        assert recorded(rollout_spans) == [root_record({}, None)]

    def test_validation_is_a_group_of_its_own(self, rollout_spans: InMemorySpanExporter) -> None:
        """A validation pass over the same sample stands apart from training."""
        with rollout_trace_attr(sample_index=0, step=0, rollout_n=0, validate=True):
            pass
        assert recorded(rollout_spans) == [
            root_record(
                {"step": 0, "sample_index": 0, "rollout_n": 0, "validate": True},
                "s0 · step 0 · validate · test-project/test-experiment",
            )
        ]

    def test_group_without_a_step(self, rollout_spans: InMemorySpanExporter) -> None:
        """Without a step the group is named by the sample."""
        with rollout_trace_attr(sample_index="uid-1"):
            pass
        assert recorded(rollout_spans) == [
            root_record({"sample_index": "uid-1"}, "uid-1 · test-project/test-experiment")
        ]

    @pytest.mark.parametrize(
        ("given", "tag"),
        [
            (np.int64(3), 3),
            (np.array(4), 4),
            (True, 1),
            ("uid", "uid"),
            (np.str_("uid"), "uid"),
            (2**70, str(2**70)),
            (1.5, "1.5"),
            ((1, 2), "[1,2]"),
            ("\ud800", "?"),
        ],
    )
    def test_tags_of_any_type(self, rollout_spans: InMemorySpanExporter, given: Any, tag: Any) -> None:
        """An index becomes an int that fits in 64 bits, anything else a text that every backend takes."""
        with rollout_trace_attr(sample_index=given):
            pass
        (root,) = recorded(rollout_spans)
        assert root["attributes"]["rollout.sample_index"] == tag
        assert type(root["attributes"]["rollout.sample_index"]) is type(tag)

    @pytest.mark.parametrize(
        "given", [7.0, "7", " 7 ", "7.0", np.float32(7), np.float64(7.0), np.array(7.0), np.str_("7")]
    )
    def test_a_number_in_another_type(
        self, rollout_spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture, given: Any
    ) -> None:
        """Whole floats and digits are the step and the rollout that they write, without a word."""
        with rollout_trace_attr(sample_index=1.0, step=given, rollout_n=given):
            pass
        (root,) = recorded(rollout_spans)
        attributes = root["attributes"]
        assert [attributes[f"rollout.{tag}"] for tag in ("sample_index", "step", "rollout_n")] == [1, 7, 7]
        assert {type(attributes["rollout.step"]), type(attributes["rollout.sample_index"])} == {int}
        assert caplog.messages == []

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            (1.5, "1.5"),
            ("val", "val"),
            ({}, "{}"),
            (2**70, str(2**70)),
            ("9" * 19, "9" * 19),
            ([1], "[1]"),
            (float("nan"), "null"),
            ("", ""),
        ],
    )
    def test_a_step_that_is_no_number(
        self, rollout_spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture, given: Any, text: str
    ) -> None:
        """Any other step or rollout is its text, which keeps its group apart; one warning for each of the two."""
        for _ in range(2):
            with rollout_trace_attr(sample_index=3, step=given, rollout_n=given):
                pass
        root, _ = recorded(rollout_spans)
        assert root["attributes"]["rollout.step"] == root["attributes"]["rollout.rollout_n"] == text
        assert root["attributes"]["session.id"] == f"s3 · step {text} · test-project/test-experiment"
        assert caplog.messages == [
            (
                f"rollout_trace_attr(step=…): this should be a whole number, not {text!r} of type "
                f"{type(given).__name__}; the tag is this text, by which `ls --step none` lists it; a validation pass "
                "is validate=True"
            ),
            (
                f"rollout_trace_attr(rollout_n=…): this should be a whole number, not {text!r} of type "
                f"{type(given).__name__}; the tag is this text"
            ),
        ]

    @pytest.mark.parametrize(("given", "text"), [([1], "[1]"), ({"row": 1}, '{"row":1}'), (1.5, "1.5")])
    def test_a_sample_index_that_is_no_number_and_no_text(
        self, rollout_spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture, given: Any, text: str
    ) -> None:
        """Its JSON text is the tag, after one warning."""
        for _ in range(2):
            with rollout_trace_attr(sample_index=given):
                pass
        root, _ = recorded(rollout_spans)
        assert root["attributes"]["rollout.sample_index"] == text
        assert caplog.messages == [
            (
                f"rollout_trace_attr(sample_index=…): this should be a whole number or a text, not {text!r} of type "
                f"{type(given).__name__}; the tag is this text"
            )
        ]

    def test_find_trajectory_reads_tags_alike(self, rollout_spans: InMemorySpanExporter) -> None:
        """A trajectory is found by any spelling of its numbers."""
        with rollout_trace_attr(sample_index=1.0, step="2", rollout_n=3.0) as trajectory:
            pass
        assert otel_rollout.find_trajectory(step=2.0, sample_index=1, rollout_n="3").trace_id == trajectory.trace_id


class TestOutcome:
    """How a trajectory ends."""

    def test_exception(self, rollout_spans: InMemorySpanExporter) -> None:
        """An exception that leaves a trajectory passes unchanged, and makes its status `error`."""
        error = ValueError("lost")
        with pytest.raises(ValueError) as caught, rollout_trace_attr(1):
            raise error
        assert caught.value is error
        (root,) = recorded(rollout_spans)
        (event,) = root.pop("events")
        assert (event["exception.type"], event["exception.message"]) == ("ValueError", "lost")
        assert root == root_record(
            {"sample_index": 1},
            "s1 · test-project/test-experiment",
            status="ERROR",
            description="ValueError: lost",
            metadata={"status": "error"},
            attributes={"error.type": "ValueError"},
            end_time=3,
        )

    @pytest.mark.parametrize("error", [asyncio.CancelledError, KeyboardInterrupt])
    def test_cancelled(self, rollout_spans: InMemorySpanExporter, error: type[BaseException]) -> None:
        """A trajectory that is cancelled has the status `cancelled`."""
        with pytest.raises(error), rollout_trace_attr(1):
            raise error
        (root,) = recorded(rollout_spans)
        assert (root["status"], root["description"]) == ("ERROR", "cancelled")
        assert (root["attributes"]["rollout.status"], root["attributes"]["metadata"]["status"]) == ("cancelled",) * 2

    def test_closed_generator(self, rollout_spans: InMemorySpanExporter) -> None:
        """A trajectory inside a generator that is closed is cancelled, which is no failure."""

        def rollouts() -> Any:
            with rollout_trace_attr(1):
                yield

        generator = rollouts()
        next(generator)
        generator.close()
        assert recorded(rollout_spans) == [
            root_record({"sample_index": 1}, "s1 · test-project/test-experiment", metadata={"status": "cancelled"})
        ]

    def test_annotated_status_counts(self, rollout_spans: InMemorySpanExporter) -> None:
        """A status that was annotated is kept when the trajectory ends well."""
        with rollout_trace_attr(1):
            annotate(status="truncated")
        (root,) = recorded(rollout_spans)
        assert root["attributes"]["rollout.status"] == "truncated"

    def test_annotated_error_fails_the_span(self, rollout_spans: InMemorySpanExporter) -> None:
        """A trajectory that was annotated as an error is one for every backend."""
        with rollout_trace_attr(1):
            annotate(status="error")
        (root,) = recorded(rollout_spans)
        assert (root["status"], root["attributes"]["rollout.status"]) == ("ERROR", "error")


class TestNewRoot:
    """A trajectory is a trace of its own."""

    def test_inside_an_ambient_span(self, rollout_spans: InMemorySpanExporter) -> None:
        """A trajectory is a trace of its own even inside another span, which it links to; the span is current after."""
        with TracerProvider().get_tracer("trainer").start_as_current_span("training step") as ambient:
            with rollout_trace_attr(1):
                op()
            assert trace.get_current_span() is ambient
        child, root = recorded(rollout_spans)
        assert (child["trace_id"], root["trace_id"], root["parent_id"]) == (1, 1, None)
        assert root["links"] == [ambient.get_span_context().span_id]

    def test_trajectory_inside_a_trajectory(self, rollout_spans: InMemorySpanExporter) -> None:
        """A trajectory inside another is a trace of its own that links to the span it was started in."""
        with rollout_trace_attr(1, name="outer"):
            op(1)
            with rollout_trace_attr(2, name="inner"):
                op(2)
                annotate(reward=2)
            op(3)
            annotate(reward=1)
        spans = recorded(rollout_spans)
        assert span_tree(rollout_spans.spans) == [["outer", ["op"], ["op"]], ["inner", ["op"]]]
        by_name = {span["name"]: span for span in spans}
        assert by_name["inner"]["links"] == [by_name["outer"]["span_id"]]
        assert by_name["inner"]["trace_id"] != by_name["outer"]["trace_id"]
        assert {name: by_name[name]["attributes"]["rollout.reward"] for name in ("inner", "outer")} == {
            "inner": 2.0,
            "outer": 1.0,
        }

    def test_op_outside_is_a_marked_root(self, rollout_spans: InMemorySpanExporter) -> None:
        """An op outside any trajectory is a root of its own, marked as such, which links to the ambient span."""
        with TracerProvider().get_tracer("trainer").start_as_current_span("training step") as ambient:
            op(1)
        assert recorded(rollout_spans) == [
            {
                "name": "op",
                "trace_id": 1,
                "span_id": 1,
                "parent_id": None,
                "start_time": 1,
                "end_time": 2,
                "status": "UNSET",
                "links": [ambient.get_span_context().span_id],
                "attributes": {
                    "openinference.span.kind": "CHAIN",
                    "rollout.outside_trajectory": True,
                    "input.value": {"value": 1},
                    "input.mime_type": "application/json",
                    "output.value": 1,
                    "output.mime_type": "application/json",
                },
            }
        ]


class TestMemory:
    """The memory of a delivered trajectory."""

    def test_freed_without_the_garbage_collector(self) -> None:
        """The spans of a trajectory are freed as soon as their batch is delivered, root included."""

        class Nowhere(SpanExporter):
            def export(self, spans: Any) -> SpanExportResult:
                return SpanExportResult.SUCCESS

        otel_rollout.init("project", "experiment", backend=Nowhere())
        gc.disable()
        try:
            with rollout_trace_attr(1):
                root = weakref.ref(trace.get_current_span())
                op(1)
            assert otel_rollout.flush(60)
            assert otel_rollout.shutdown()
            assert root() is None
        finally:
            gc.enable()


class TestTwoTasks:
    """One object that two tasks enter at once."""

    def test_each_has_a_trajectory_of_its_own(self, rollout_spans: InMemorySpanExporter) -> None:
        """The ops of each task are under a root of its own."""

        @rollout_trace_op
        async def step() -> None:
            await asyncio.sleep(0.01)

        shared = rollout_trace_attr(sample_index=1, name="shared")

        async def run() -> None:
            async with shared:
                await step()

        async def main() -> None:
            await asyncio.gather(run(), run(), run())

        asyncio.run(main())
        assert otel_rollout.flush(60)
        assert [[tree[0], len(tree)] for tree in span_tree(rollout_spans.spans)] == [["shared", 2]] * 3


class TestReuse:
    """The context manager itself."""

    def test_one_object_twice(self, rollout_spans: InMemorySpanExporter) -> None:
        """The same context manager can be entered again after it was left: two trajectories with the same tags."""
        trajectory = rollout_trace_attr(1)
        for _ in range(2):
            with trajectory:
                op()
        assert [span["trace_id"] for span in recorded(rollout_spans)] == [1, 1, 2, 2]
        assert span_tree(rollout_spans.spans) == [["rollout_trace", ["op"]]] * 2

    def test_one_object_in_tasks_at_once(self, rollout_spans: InMemorySpanExporter) -> None:
        """Each task has a trajectory of its own, and one in silence has none and ends none."""
        trajectory = rollout_trace_attr(1)

        async def rollout(number: int) -> None:
            with rollout_trace_attr(trace=False) if number == 1 else nullcontext(), trajectory:
                await asyncio.sleep(0.002 * (number != 1))
                op()

        async def rollouts() -> None:
            await asyncio.gather(*map(rollout, range(3)))

        asyncio.run(rollouts())
        assert otel_rollout.flush(60)
        assert span_tree(rollout_spans.spans) == [["rollout_trace", ["op"]]] * 2
        # A root is delivered when it ends.
        assert [span.name for span in rollout_spans.spans] == ["op", "rollout_trace"] * 2

    def test_left_in_another_thread(
        self, rollout_spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A trajectory that is left in another thread than it was entered in ends all the same, with no log line."""
        trajectory = rollout_trace_attr(1)
        entering = threading.Thread(target=trajectory.__enter__)
        entering.start()
        entering.join()
        trajectory.__exit__(None, None, None)
        assert recorded(rollout_spans) == [root_record({"sample_index": 1}, "s1 · test-project/test-experiment")]
        assert caplog.records == []
