"""All trajectories from closed indexes by DuckDB: what the catalog has, or nothing."""

from __future__ import annotations

import pytest
import zstandard

from otel_rollout import dataframes, semconv
from otel_rollout.catalog import COLUMNS
from otel_rollout.folder import scan_frames
from otel_rollout.folder.folder_writer import FolderWriter
from tests.dataframes.made import steps
from tests.trace_folder.recordings import make_span, make_trajectory, write_folder

pytest.importorskip("duckdb")
closed_indexes = pytest.importorskip("otel_rollout.dataframes.closed_indexes")
SAID = '[{"role": "user", "content": "\\u00fc \\"[redacted]\\" \\u0007"}]'


def read(folder, *names):
    """Return columns from the closed indexes alone."""
    columns = [each for each in COLUMNS["trajectories"] if not names or each.name in names]
    return closed_indexes.read_closed([folder], columns)


def change_lines(folder, change):
    """Change the lines of a folder's only closed index."""
    [index] = folder.rglob("*.index.jsonl.zst")
    lines = [line for frame in scan_frames(index) for line in frame.request.splitlines()]
    index.write_bytes(zstandard.compress(b"\n".join(change(lines)) + b"\n"))


class TestEqual:
    """The catalog's rows."""

    @pytest.mark.parametrize("prompts", [(0, 7, 2**40), (0, "a 1", "7"), (None,)], ids=["numbers", "texts", "none"])
    def test_to_the_catalogs(self, prompts, tmp_path, monkeypatch):
        """Types, values, order and metadata are the same: of steps, validation, errors, and other programs' spans."""
        parts = {semconv.REWARD_PARTS: '{"format": 1, "length": 0.5, "\\u00e9": true}'}
        made = [
            make_trajectory(step, prompt, n, payload=SAID, **parts)
            for step in (1, 250)
            for prompt in prompts
            for n in (0, 1)
        ]
        made += [make_trajectory(2, prompts[0], 0, validate=True, reward=None, status="error")]
        folder = write_folder(tmp_path / "traces", *made, [make_span("other", 5, 77, parent=None, error="refused")])
        assert read(folder)
        found = dataframes.trajectories(folder)
        monkeypatch.setattr(closed_indexes, "read_closed", lambda *_: None)
        assert found.equals(dataframes.trajectories(folder), check_metadata=True)

    def test_columns_in_any_order(self, tmp_path):
        """Columns that are asked for are there alone, a column twice, too."""
        folder = write_folder(tmp_path / "traces", *steps([1]))
        names = ["worker", "reward", "step", "reward"]
        assert read(folder)
        assert dataframes.trajectories(folder, columns=names).column_names == names


class TestDoubts:
    """What the lines alone don't have comes from the catalog."""

    def test_a_file_that_is_being_written(self, tmp_path):
        """The lines of an open index are no JSON of DuckDB's."""
        writer = FolderWriter(tmp_path)
        writer.write(make_trajectory(1))
        assert read(tmp_path) is None
        assert dataframes.trajectories(tmp_path).num_rows == 1
        writer.close()

    def test_a_late_reward(self, tmp_path):
        """A trajectory of two lines is joined by the catalog."""
        spans = make_trajectory(1)
        late = make_span(
            "annotate", 9, spans[-1].context.trace_id, attributes={semconv.LATE: True, semconv.REWARD: 0.25}
        )
        folder = write_folder(tmp_path / "traces", spans, [late])
        assert read(folder) is None
        assert dataframes.trajectories(folder)["reward"].to_pylist() == [0.25]

    def test_a_run_that_was_resumed(self, tmp_path):
        """A process that began once the others had ended may be another attempt, which the catalog knows."""
        folder = write_folder(tmp_path / "traces", make_trajectory(1), make_trajectory(2))
        attributes = {semconv.STEP: 2, semconv.EXPERIMENT_NAME: "exp"}
        later = [make_span("rollout", 1, 99, parent=None, seconds=(10, 11), attributes=attributes)]
        assert read(folder)
        write_folder(folder, later)
        assert read(folder) is None

    def test_a_run_that_was_resumed_through_one_receiver(self, tmp_path):
        """Its attempts, by their run ids, are in the same file; spans without a step are of none."""
        attributes = {semconv.STEP: 2, semconv.EXPERIMENT_NAME: "exp"}
        later = make_span("rollout", 1, 99, parent=None, seconds=(10, 11), attributes=attributes, run_id="resumed")
        without_step = {semconv.EXPERIMENT_NAME: "exp"}
        other = make_span("other", 1, 98, parent=None, seconds=(0, 20), attributes=without_step)
        folder = write_folder(tmp_path / "traces", make_trajectory(1), make_trajectory(2), [other], [later])
        assert read(folder) is None

    @pytest.mark.parametrize(
        "change",
        [
            lambda lines: lines[:-1],
            lambda lines: [lines[0], lines[0]],
            lambda lines: [line.replace(b'"sample_index":0', b'"sample_index":0.5') for line in lines],
            lambda lines: [line.replace(b'"sample_index":0', b'"sample_index":true') for line in lines],
            lambda lines: [line.replace(b'"sample_index":0', b'"sample_index":"\\u0007"') for line in lines],
            lambda lines: [line.replace(b'"status":"completed"', b'"status":7') for line in lines],
            lambda lines: [line[: line.index(b',"facts"')] + b"}" for line in lines],
            lambda lines: [lines[0], b"{"],
        ],
        ids=["a line lost", "a line twice", "a fraction", "a boolean", "an escape", "a status", "no facts", "no JSON"],
    )
    def test_of_lines(self, change, tmp_path):
        """Lines that don't add up to their file, or that the catalog reads in another way."""
        folder = write_folder(tmp_path / "traces", *steps([1]))
        assert read(folder)
        change_lines(folder, change)
        assert read(folder) is None
        assert dataframes.trajectories(folder)["prompt"].to_pylist() == ["hello"] * 2

    def test_facts_that_are_inferred(self, tmp_path):
        """A line that lacks them has all other columns."""
        folder = write_folder(tmp_path / "traces", *steps([1]))
        change_lines(folder, lambda lines: [line[:-2] + b',"not_inferred":true}}' for line in lines])
        assert read(folder, "reward", "prompt")
        assert read(folder, "reward", "subagents") is None
