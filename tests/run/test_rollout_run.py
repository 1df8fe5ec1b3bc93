"""A run read from its folders: what changes, what is damaged, what is asked for."""

from __future__ import annotations

import pytest

from otel_rollout import read_trajectories, semconv
from otel_rollout.catalog import Run
from otel_rollout.facts import shapes_of
from tests.run.asked import steps_of, summaries_of
from tests.trace_folder.recordings import make_span, make_trajectory, trace_id_of, write_folder


def outline(steps) -> list[tuple]:
    """Return each step's number, kind and trajectories."""
    return [(step.step, step.validate, step.trajectories) for step in steps]


@pytest.fixture
def folder(tmp_path):
    """Two steps with two prompts of two rollouts, and a validation."""
    trajectories = [
        make_trajectory(step, sample, rollout, reward=float(rollout))
        for step in (1, 2)
        for sample in (0, 1)
        for rollout in (0, 1)
    ]
    return write_folder(tmp_path / "traces", *trajectories, make_trajectory(2, 0, validate=True))


class TestFolders:
    """Several folders."""

    def test_one_inside_another(self, folder):
        """What is in both counts once."""
        assert outline(Run([folder, folder / "steps=000000-000099", folder]).steps())[0] == (1, False, 4)


class TestTrajectories:
    """What is asked for by step, prompt or id."""

    def test_a_group(self, folder):
        """By a number or its text."""
        run = Run([folder])
        [step] = steps_of(run, 1)
        group = run.group(step, "1")
        assert run.group(step, 1) == run.group_of(run.summary(group.trace_ids[0])) == group
        assert group.trace_ids == tuple(each.trace_id for each in run.rollouts(group))
        assert run.group(step, 99) is None

    def test_shapes_are_read_once(self, folder, monkeypatch):
        """The places of spans are kept in the catalog, for all readers, until a trajectory changes."""
        read = []
        monkeypatch.setattr("otel_rollout.folder.reader.shapes_of", lambda spans: read.append(1) or shapes_of(spans))
        run = Run([folder])
        [step, _, _] = run.steps()
        found = run.shapes(step)
        assert [len(shapes) for shapes in found.values()] == [run.summary(trace_id).spans for trace_id in found]
        again = Run([folder]).shapes(step)
        assert len(read) == len(again) == 4
        assert {each: list(map(tuple, again[each])) for each in again} == found
        trace_id = trace_id_of(1, 0, 0)
        write_folder(folder, [make_span("late", 99, trace_id, attributes={semconv.STEP: 1})])
        [step, _, _] = run.steps()
        assert [name for name, *_ in run.shapes(step)[f"{trace_id:032x}"]].count("late") == 1
        assert len(read) == 5

    @pytest.mark.parametrize("is_root_first", [False, True])
    @pytest.mark.parametrize("writers", [1, 2])
    def test_a_root_of_another_program(self, tmp_path, writers, is_root_first):
        """A root without a step has the tags of its spans, also if they are in other files."""
        tags = dict(zip(semconv.TAGS, (5, 1, 2, False, "exp"), strict=True))
        spans = [
            make_span("generate", 2, 7, seconds=(0.1, 0.6), attributes={semconv.SPAN_KIND: "LLM", **tags}),
            make_span("request", 1, 7, parent=None, attributes={"http.method": "GET"}),
        ]
        if is_root_first:
            spans.reverse()
        if writers == 1:
            write_folder(tmp_path, *([span] for span in spans))
        else:
            for span in spans:
                write_folder(tmp_path, [span])
        run = Run([tmp_path])
        assert outline(run.steps()) == [(5, False, 1)]
        found = [*summaries_of(run, 5), *read_trajectories(tmp_path), *read_trajectories(tmp_path, step=5)]
        assert {(each.name, each.has_root, each.sample_index, each.rollout_n) for each in found} == {
            ("request", True, 1, 2)
        }
        assert len(found) == 3

    def test_one_by_its_id(self, folder):
        """In a run that has read nothing yet, with and without a catalog; its spans are read."""
        trace_id = f"{trace_id_of(2, 1, 1):032x}"
        for _ in range(2):
            run = Run([folder])
            assert (run.summary(trace_id).step, run.summary(trace_id).sample_index) == (2, 1)
            assert len(run.trajectory(trace_id).spans) == 3
            run.steps()
        with pytest.raises(KeyError, match="f00"):
            Run([folder]).trajectory("f00")

    def test_a_prompt_at_all_steps(self, folder):
        """Of training or of validation; a text is no number's beginning."""
        run = Run([folder])
        first, *_, validation = run.steps()
        assert [group.step for group in run.same_prompt(1, first)] == [1, 2]
        assert [group.step for group in run.same_prompt("1", first)] == [1, 2]
        assert [group.step for group in run.same_prompt(0, validation)] == [2]
        assert run.same_prompt("1,", first) == []
