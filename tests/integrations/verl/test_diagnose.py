"""The findings of `diagnose` in verl's own agent loop: none in a healthy step, and each fault of a faulty one."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from otel_rollout.catalog.failure_class import failure_class
from otel_rollout.facts import TrajectorySummary, summarise_trajectory
from otel_rollout.look.findings import Finding, diagnose
from tests.findings.made_up_steps import summarise
from tests.integrations.verl.conftest import PROGRAMS, Run, RunProgram, traced

pytestmark = pytest.mark.slow

HEALTHY_STEP, FAULTY_STEP, WAITING_STEP = 5, 12, 13
BATCHES = [
    {"prompts": [f"plan {number}" for number in range(32)], "n": 1, "step": HEALTHY_STEP},
    {
        "prompts": [f"{fault} {number}" for fault in ("broken", "garbled", "long", "plan") for number in range(6)],
        "n": 2,
        "step": FAULTY_STEP,
    },
    {
        "prompts": [f"{fault} {number}" for fault in ("stall", "plan") for number in range(10)],
        "n": 2,
        "step": WAITING_STEP,
    },
]


@pytest.fixture(scope="module")
def steps(run_program: RunProgram) -> dict[int | None, list[TrajectorySummary]]:
    """The trajectories of all three steps."""
    run = run_program(
        "run_worker.py", batches=BATCHES, overrides=traced("actor_rollout_ref.rollout.trace.token2text=True")
    )
    return by_step(run)


def by_step(run: Run) -> dict[int | None, list[TrajectorySummary]]:
    """Return the summaries of a run's trajectories by step."""
    found = defaultdict(list)
    for summary in summaries_of(run):
        found[summary.step].append(summary)
    return found


def summaries_of(run: Run) -> list[TrajectorySummary]:
    """Return the summaries of a run's trajectories."""
    return [summarise_trajectory(map(span_of, trace)) for trace in run.traces()]


def span_of(record: dict[str, Any]) -> ReadableSpan:
    """Return the span that the exporter wrote as JSON."""

    def context(span_id: int) -> SpanContext:
        return SpanContext(int(record["trace_id"], 16), span_id, is_remote=False, trace_flags=TraceFlags(1))

    attributes = {
        key: value
        if isinstance(value, (str, int, float, bool)) or value is None or is_scalars(value)
        else json.dumps(value)
        for key, value in record["attributes"].items()
    }
    return ReadableSpan(
        record["name"],
        context=context(record["span_id"]),
        parent=None if record["parent_id"] is None else context(record["parent_id"]),
        resource=Resource(record["resource"]),
        attributes=attributes,
        status=Status(StatusCode[record["status"]]),
        start_time=record["start_time"],
        end_time=record["end_time"],
    )


def is_scalars(value: object) -> bool:
    """Return True for a list that an attribute can be."""
    return isinstance(value, list) and all(isinstance(each, (str, int, float)) for each in value)


def found_in(*steps: list[TrajectorySummary]) -> dict[str, Finding]:
    """Return the findings of steps by check."""
    trajectories = {each[0].step: each for each in steps}
    diagnosis = diagnose([summarise(each) for each in steps], lambda step: trajectories[step.step])
    return {finding.check: finding for finding in diagnosis.findings}


class TestVerl:
    """A run of verl."""

    def test_a_healthy_step_has_no_finding(self, steps):
        """Trajectories whose tools work and whose weights are new are as they should be."""
        assert len(steps[HEALTHY_STEP]) == 32
        assert found_in(steps[HEALTHY_STEP]) == {}

    def test_each_fault_is_found(self, steps):
        """Calls that fail, name no tool or can't be read, cut answers, equal rollouts and old weights are found."""
        found = found_in(steps[FAULTY_STEP])
        assert {
            "duplicates",
            "stale_weights",
            "tool_errors",
            "truncated",
            "unknown_tools",
            "unparsed_calls",
        } <= set(found)
        assert found["truncated"].number == 12
        assert found["unknown_tools"].number == 12
        assert found["duplicates"].number == 24
        assert found["stale_weights"].value == FAULTY_STEP - 1 - 4
        assert all(each.prompt.startswith("long") for each in of(steps, found["truncated"]))

    def test_evidence_has_the_fault(self, steps):
        """The prompts of the evidence are those that make the fault."""
        found = found_in(steps[FAULTY_STEP])
        assert {each.prompt.split()[0] for each in of(steps, found["unknown_tools"])} == {"broken"}

    def test_timeouts_are_found(self, steps):
        """Tools that time out are found and told as such."""
        assert "tool_errors" in found_in(steps[WAITING_STEP])
        stalled = [each for each in steps[WAITING_STEP] if each.prompt.startswith("stall")]
        assert {failure_class(each, worst_reward=each.reward) for each in stalled} == {"timeout"}

    def test_trajectories_without_an_end_are_found(self, run_program: RunProgram):
        """Trajectories whose process ends in the middle of a tool call are found."""
        batch = {"prompts": [f"die {number}" for number in range(3)], "n": 2, "step": 1}
        trajectories = by_step(run_program("run_worker.py", batches=[batch], overrides=traced()))[1]
        found = found_in(trajectories)["rootless"]
        assert found.number == found.total == len(trajectories) > 0

    def test_prefix_breaks_are_found(self, run_program: RunProgram):
        """An agent loop that changes earlier turns is found, and not where there is no earlier turn."""
        batch = {"prompts": ["plan 0", "plan 1", "vary 2", "vary 3"], "n": 2, "step": 1}
        loop = [
            f"actor_rollout_ref.rollout.agent.agent_loop_config_path={PROGRAMS / 'forgetful_loop.yaml'}",
            "actor_rollout_ref.rollout.agent.default_agent_loop=forgetful_agent",
        ]
        trajectories = by_step(run_program("run_worker.py", batches=[batch], overrides=traced(*loop)))[1]
        found = found_in(trajectories)["prefix_breaks"]
        assert (found.number, found.total) == (4, 8)
        assert all(each.prompt.startswith("plan") for each in of({1: trajectories}, found, 1))

    def test_lost_spans_are_found(self, run_program: RunProgram):
        """Spans for which the queue had no room are found, as many as their roots say."""
        batch = {"prompts": [f"plan {number}" for number in range(40)], "n": 2, "step": 1}
        small = {"OTEL_BSP_MAX_QUEUE_SIZE": "32", "VERL_TEST_SECONDS_PER_EXPORT": "1"}
        run = run_program("run_worker.py", batches=[batch], overrides=traced(), variables=small)
        trajectories = by_step(run)[1]
        found = found_in(trajectories)["lost_spans"]
        assert found.number == sum(each.dropped_spans for each in trajectories) > 0
        assert all(each.dropped_spans for each in of({1: trajectories}, found, 1))


def of(
    steps: dict[int | None, list[TrajectorySummary]], finding: Finding, step: int = FAULTY_STEP
) -> list[TrajectorySummary]:
    """Return the trajectories of a finding's evidence."""
    ids = {each.trace_id for each in finding.evidence}
    return [each for each in steps[step] if each.trace_id in ids]
