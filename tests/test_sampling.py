"""Which trajectories are traced: whole samples, the same in every process, whatever is seeded how."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op, select_samples
from otel_rollout.record import RolloutSampleRatio, sample_ratio_sampler
from otel_rollout.testing import InMemorySpanExporter

STEPS, SAMPLES, ROLLOUTS = 5, 40, 4


@rollout_trace_op(name="inner")
def inner() -> None:
    """Do nothing."""


@rollout_trace_op(name="outer")
def outer() -> None:
    """Call another op."""
    inner()


def trace_all(**settings: Any) -> list[dict[str, Any]]:
    """Trace some steps of samples and rollouts, and return the spans."""
    exporter = InMemorySpanExporter()
    otel_rollout.init("project", "experiment", backend=exporter, **settings)
    for step in range(STEPS):
        for sample in range(SAMPLES):
            for rollout in range(ROLLOUTS):
                with rollout_trace_attr(sample, step, rollout):
                    inner()
    assert otel_rollout.flush(60)
    otel_rollout.shutdown()
    return exporter.as_dicts()


def kept_samples(spans: list[dict[str, Any]]) -> dict[tuple[int, int], int]:
    """Return how many rollouts were traced of each (step, sample)."""
    kept: dict[tuple[int, int], int] = defaultdict(int)
    for span in spans:
        if span["parent_id"] is None:
            kept[span["attributes"]["rollout.step"], span["attributes"]["rollout.sample_index"]] += 1
    return dict(kept)


SAMPLER = {"OTEL_TRACES_SAMPLER": "rollout_sample_ratio", "OTEL_TRACES_SAMPLER_ARG": "0.3"}
DECIDE = """
import json, os, random, sys
import numpy
import otel_rollout
from otel_rollout import rollout_trace_attr, select_samples
from otel_rollout.testing import InMemorySpanExporter

random.seed(0); numpy.random.seed(0)
exporter = InMemorySpanExporter()
otel_rollout.init("project", "experiment", backend=exporter)
for step in range(5):
    for sample in range(40):
        with rollout_trace_attr(sample, step, 0):
            pass
otel_rollout.flush()
kept = [[span.attributes["rollout.step"], span.attributes["rollout.sample_index"]] for span in exporter.spans]
picked = [sorted(select_samples([f"uid-{i}" for i in range(20)], 3, step=step)) for step in range(5)]
print(json.dumps({"kept": kept, "picked": picked, "ids": [span.context.trace_id for span in exporter.spans]}))
"""


def decide(**variables: str) -> dict[str, Any]:
    """Return what another process decides, with `random` and numpy seeded alike in each."""
    ran = subprocess.run(
        [sys.executable, "-c", DECIDE],
        env={
            **os.environ,
            "OTEL_TRACES_SAMPLER": "rollout_sample_ratio",
            "OTEL_TRACES_SAMPLER_ARG": "0.3",
            **variables,
        },
        capture_output=True,
        timeout=300,
        check=True,
    )
    decided: dict[str, Any] = json.loads(ran.stdout)
    return decided


class TestRatio:
    """The sampler `rollout_sample_ratio`."""

    def test_whole_samples(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """About the given share of samples is kept, each with all its rollouts and ops, others in other steps."""
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "rollout_sample_ratio")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.25")
        spans = trace_all()
        kept = kept_samples(spans)
        assert set(kept.values()) == {ROLLOUTS}
        assert 0.15 < len(kept) / (STEPS * SAMPLES) < 0.35
        assert len(spans) == 2 * ROLLOUTS * len(kept)
        by_step = [{sample for at, sample in kept if at == step} for step in range(STEPS)]
        assert len({frozenset(samples) for samples in by_step}) == STEPS

    @pytest.mark.parametrize(("ratio", "count"), [("0", 0), ("1", STEPS * SAMPLES), ("", STEPS * SAMPLES)])
    def test_bounds(self, monkeypatch: pytest.MonkeyPatch, ratio: str, count: int) -> None:
        """A ratio of 0 keeps nothing, 1 and an unset one everything."""
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "rollout_sample_ratio")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", ratio)
        assert len(kept_samples(trace_all())) == count

    def test_a_larger_ratio_keeps_more_of_the_same(self) -> None:
        """Every larger ratio keeps the samples of a smaller one."""

        def kept(ratio: float) -> set[int]:
            sampler = RolloutSampleRatio(ratio)
            return {
                sample
                for sample in range(200)
                if sampler.should_sample(
                    None, 1, "root", attributes={"rollout.step": 1, "rollout.sample_index": sample}
                ).decision.is_sampled()
            }

        assert kept(0.0) < kept(0.2) < kept(0.6) < kept(1.0)

    def test_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Another run keeps other samples; the run comes from the argument of `init` as from the environment."""
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "rollout_sample_ratio")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.3")
        by_argument = [kept_samples(trace_all(run_id=run)) for run in ("run-1", "run-2")]
        monkeypatch.setenv("OTEL_ROLLOUT_RUN_ID", "run-2")
        assert by_argument[0] != by_argument[1] == kept_samples(trace_all())

    def test_processes_agree(self) -> None:
        """Processes with other hash seeds decide alike, and their ids differ though all seed `random` alike."""
        first, second = decide(PYTHONHASHSEED="1"), decide(PYTHONHASHSEED="2")
        assert first["kept"] == second["kept"] != []
        assert first["picked"] == second["picked"]
        assert not set(first["ids"]) & set(second["ids"])

    def test_ops_outside_a_trajectory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An op outside any trajectory is kept or dropped together with the ops that it calls."""
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "rollout_sample_ratio")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
        exporter = InMemorySpanExporter()
        otel_rollout.init("project", "experiment", backend=exporter)
        for _ in range(100):
            outer()
        assert otel_rollout.flush(60)
        traces: dict[int, list[str]] = defaultdict(list)
        for span in exporter.as_dicts():
            traces[span["trace_id"]].append(span["name"])
        assert 20 < len(traces) < 80
        assert all(names == ["inner", "outer"] for names in traces.values())

    def test_description(self) -> None:
        """The sampler names itself and its ratio."""
        assert "RolloutSampleRatio{0.5}" in sample_ratio_sampler("0.5").get_description()

    def test_in_a_plain_sdk(self) -> None:
        """In a provider of the application's, spans under a sampled one are sampled with it."""
        tracer = TracerProvider(sampler=sample_ratio_sampler("0")).get_tracer("plain")
        assert not tracer.start_span("root").is_recording()
        parent = NonRecordingSpan(SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)))
        with use_span(parent):
            assert tracer.start_span("child").is_recording()


class TestEnvironment:
    """`OTEL_TRACES_SAMPLER`."""

    @pytest.mark.parametrize(
        ("name", "argument", "shares"),
        [
            ("always_on", "", (1.0, 1.0)),
            ("always_off", "", (0.0, 0.0)),
            ("traceidratio", "0.5", (0.35, 0.65)),
            ("parentbased_always_on", "", (1.0, 1.0)),
            ("parentbased_always_off", "", (0.0, 0.0)),
            ("parentbased_traceidratio", "0.5", (0.35, 0.65)),
        ],
    )
    def test_standard_samplers(
        self, monkeypatch: pytest.MonkeyPatch, name: str, argument: str, shares: tuple[float, float]
    ) -> None:
        """The standard samplers decide per trajectory: its ops are there if its root is."""
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", name)
        if argument:
            monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", argument)
        spans = trace_all()
        share = sum(kept_samples(spans).values()) / (STEPS * SAMPLES * ROLLOUTS)
        assert shares[0] <= share <= shares[1]
        assert len(spans) == 2 * len({span["trace_id"] for span in spans})

    @pytest.mark.parametrize("flags", [TraceFlags.DEFAULT, TraceFlags.SAMPLED])
    @pytest.mark.parametrize(("name", "count"), [("parentbased_always_on", 2), ("parentbased_always_off", 0)])
    def test_ambient_span_decides_nothing(
        self, monkeypatch: pytest.MonkeyPatch, name: str, count: int, flags: int
    ) -> None:
        """A trajectory is a root: whether a span around it is sampled changes nothing."""
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", name)
        exporter = InMemorySpanExporter()
        otel_rollout.init("project", "experiment", backend=exporter)
        ambient = NonRecordingSpan(SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(flags)))
        with use_span(ambient), rollout_trace_attr(1):
            inner()
        assert otel_rollout.flush(60)
        assert len(exporter.spans) == count


class TestSelectSamples:
    """verl's `max_samples_per_step_per_worker`, for other trainers."""

    def test_all_rollouts_of_the_picked(self) -> None:
        """Up to N samples are picked, and every position of a picked sample is among the answer."""
        indices = [sample for sample in range(8) for _ in range(4)]
        positions = select_samples(indices, 3, step=1)
        picked = {indices[position] for position in positions}
        assert len(picked) == 3
        assert positions == {position for position, sample in enumerate(indices) if sample in picked}

    @pytest.mark.parametrize(("limit", "count"), [(None, 6), (0, 0), (-1, 0), (2, 4), (3, 6), (100, 6)])
    def test_limits(self, limit: int | None, count: int) -> None:
        """None means all, 0 none, and more than there are means all."""
        assert len(select_samples([5, 5, 6, 6, 7, 7], limit)) == count

    def test_empty(self) -> None:
        """Of nothing, nothing is picked."""
        assert select_samples([], 3) == set()

    def test_setting(self) -> None:
        """Without a limit of its own, the setting of `init` counts."""
        otel_rollout.init("p", "e", InMemorySpanExporter(), max_samples_per_step_per_worker=1)
        assert len(select_samples([1, 1, 2, 2])) == 2
        assert len(select_samples([1, 1, 2, 2], 2)) == 4

    @pytest.mark.parametrize(
        "indices", [np.array([3, 1, 3, 2]), np.array([3, 1, 3, 2], dtype=object), (3, 1, 3, 2), iter([3, 1, 3, 2])]
    )
    def test_types(self, indices: Any) -> None:
        """Arrays and any other iterables of indices pick the same samples as a list."""
        assert select_samples(indices, 2, step=4) == select_samples([3, 1, 3, 2], 2, step=4)

    def test_steps_differ(self) -> None:
        """Which samples are picked changes from step to step, and is the same for the same step."""
        picks = [frozenset(select_samples(range(100), 5, step=step)) for step in range(20)]
        assert len(set(picks)) == 20
        assert picks[3] == select_samples(range(100), 5, step=3)

    def test_every_sample_gets_its_turn(self) -> None:
        """Over many steps the picks are spread over all samples."""
        picked = set().union(*(select_samples(range(20), 4, step=step) for step in range(60)))
        assert picked == set(range(20))


@pytest.fixture
def seeds() -> Iterator[None]:
    """Seed the random generators alike before, and check that nothing was drawn from them."""
    random.seed(7)
    np.random.seed(7)
    expected = random.Random(7).random(), np.random.RandomState(7).rand()
    yield
    assert (random.random(), np.random.rand()) == expected


class TestRandomNumbers:
    """Training's random numbers are left alone."""

    def test_nothing_is_drawn(self, seeds: None, monkeypatch: pytest.MonkeyPatch) -> None:
        """Sampling and tracing draw nothing from `random` and `numpy.random`."""
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "rollout_sample_ratio")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
        assert trace_all()
        assert len(select_samples(range(10), 3)) == 3

    def test_ids_are_not_seeded(self) -> None:
        """Seeding `random` alike twice makes different ids each time."""
        seen = []
        for _ in range(2):
            random.seed(0)
            exporter = InMemorySpanExporter()
            otel_rollout.init("project", "experiment", backend=exporter)
            with rollout_trace_attr(1):
                inner()
            assert otel_rollout.flush(60)
            otel_rollout.shutdown()
            seen.extend(span["span_id"] for span in exporter.as_dicts())
        assert len(set(seen)) == 4

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_forked_children(self) -> None:
        """Forked children make other ids than their parent and each other, though they share its memory."""
        code = """
import os, sys
from otel_rollout.record.ids import SystemIdGenerator
ids = SystemIdGenerator()
ids.generate_span_id()
for _ in range(2):
    if os.fork() == 0:
        sys.stdout.write(f"{ids.generate_span_id()}\\n")
        sys.stdout.flush()
        os._exit(0)
    os.wait()
print(ids.generate_span_id())
"""
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300, check=True)
        assert len(set(ran.stdout.split())) == 3
