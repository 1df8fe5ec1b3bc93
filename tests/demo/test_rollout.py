"""The rollout: which trajectories there are, how many at a time, and what becomes of each."""

from collections import Counter
from dataclasses import replace

import pytest

import otel_rollout
from otel_rollout import semconv
from otel_rollout.demo import AgentLoop, Pass, Trajectory, mean_reward, passes, run_pass
from otel_rollout.testing import InMemorySpanExporter
from tests.demo import idle_time


def run(of: Pass, tokenizer, *, seed: int = 0, concurrency: int = 64) -> list[Trajectory]:
    ended: list[Trajectory] = []
    running = run_pass(of, tokenizer=tokenizer, seed=seed, concurrency=concurrency, on_done=ended.append)
    done = idle_time.run(running)
    assert Counter(ended) == Counter(done)
    return done


class TestPasses:
    """The passes of a run."""

    def test_training_comes_first_then_validation(self):
        """The defaults are two steps of 64 trajectories and a validation pass with one for each sample."""
        first, second, validation = passes(steps=2, samples=16, rollouts=4)
        assert [(of.name, of.trajectories) for of in (first, second, validation)] == [
            ("step 1", 64),
            ("step 2", 64),
            ("validation", 16),
        ]
        assert [of.step for of in (first, second, validation)] == [1, 2, 2]


class TestRunPass:
    """The trajectories of a pass."""

    def test_runs_every_rollout_of_every_sample_once(self, tokenizer):
        """N rollouts of each sample, numbered from 0."""
        done = run(Pass(3, samples=2, rollouts=3), tokenizer)
        assert [(each.step, each.sample_index, each.rollout_n) for each in done] == [
            (3, sample, n) for sample in range(2) for n in range(3)
        ]

    def test_the_seed_decides_everything_but_the_time(self, tokenizer):
        """Two runs with one seed come to the same; another seed comes to something else."""
        of = Pass(1, samples=8, rollouts=2)
        first, again, other = (
            [replace(each, seconds=0.0) for each in run(of, tokenizer, seed=seed)] for seed in (0, 0, 1)
        )
        assert first == again
        assert first != other

    def test_no_more_run_at_a_time_than_asked(self, tokenizer, monkeypatch):
        """The concurrency limit holds, and is used."""
        running, peak = 0, 0
        run_loop = AgentLoop.run

        async def counting(self, *args, **kwargs):
            nonlocal running, peak
            running += 1
            peak = max(peak, running)
            try:
                return await run_loop(self, *args, **kwargs)
            finally:
                running -= 1

        monkeypatch.setattr(AgentLoop, "run", counting)
        run(Pass(1, samples=10, rollouts=1, validate=True), tokenizer, concurrency=3)
        assert peak == 3

    def test_the_default_run_shows_every_way_to_end(self, tokenizer):
        """In each step of the default run something is completed, truncated, cancelled and fails outright."""
        for step in (1, 2):
            done = run(Pass(step, samples=16, rollouts=4), tokenizer)
            assert {each.status for each in done} == set(semconv.STATUSES)
            assert any(each.tool_errors and each.reward == 1.0 for each in done)


class TestTraces:
    """What a backend gets of a rollout."""

    @pytest.fixture
    def roots_and_spans(self, tokenizer):
        """The roots by sample and rollout, and all spans, of a step of the default run."""
        exporter = InMemorySpanExporter()
        otel_rollout.init("project", "experiment", backend=exporter, token2text=True)
        self.done = run(Pass(1, samples=16, rollouts=4), tokenizer)
        assert otel_rollout.flush(timeout=60)
        spans = exporter.spans
        roots = {
            (span.attributes[semconv.SAMPLE_INDEX], span.attributes[semconv.ROLLOUT_N]): span
            for span in spans
            if span.parent is None
        }
        return roots, spans

    def test_each_trajectory_is_one_trace_that_says_what_became_of_it(self, roots_and_spans):
        """The roots carry the same status, reward and turns as the results, whatever way the trajectory ended."""
        roots, spans = roots_and_spans
        assert len(roots) == len({span.context.trace_id for span in spans}) == 64
        traced = {
            ids: (root.attributes[semconv.STATUS], root.attributes.get(semconv.REWARD)) for ids, root in roots.items()
        }
        assert traced == {(each.sample_index, each.rollout_n): (each.status, each.reward) for each in self.done}

    def test_a_tool_error_stands_on_its_span_only(self, roots_and_spans):
        """The tool's span has failed, the trajectory around it has not."""
        roots, spans = roots_and_spans
        failed = next(each for each in self.done if each.tool_errors and each.reward == 1.0)
        root = roots[failed.sample_index, failed.rollout_n]
        in_error = [span for span in spans if span.context.trace_id == root.context.trace_id and not span.status.is_ok]
        assert [span.attributes[semconv.SPAN_KIND] for span in in_error] == ["TOOL"]
        assert in_error[0].attributes[semconv.ERROR_TYPE].endswith("ToolError")
        assert root.attributes[semconv.STATUS] == "completed"

    def test_token_ids_are_readable(self, roots_and_spans):
        """What the policy said stands beside its token ids."""
        _, spans = roots_and_spans
        said = [span for span in spans if span.name == "Policy.generate" and span.status.is_ok]
        assert all('"response_text":"' in span.attributes[semconv.OUTPUT_VALUE] for span in said)

    def test_tool_calls_are_calls_in_messages(self, roots_and_spans):
        """What the policy wrote in marks is a part of its message."""
        _, spans = roots_and_spans
        said = [span.attributes.get(semconv.OUTPUT_MESSAGES, "") for span in spans if span.name == "Policy.generate"]
        assert any('"type":"tool_call"' in messages for messages in said)
        assert not any("<tool_call>" in messages for messages in said)


class TestMeanReward:
    """The mean reward of a pass."""

    def test_leaves_out_a_trajectory_without_reward(self):
        """The mean is that of `otel-rollout ls`: of the rewards that are known."""
        done = [Trajectory(1, 0, n, False, "completed", 0.1, reward=reward) for n, reward in enumerate([1.0, None])]
        assert mean_reward(done) == 1.0
        assert mean_reward(done[1:]) is None
