"""The tables of trace folders as Arrow tables, in pandas and polars."""

from __future__ import annotations

import gc
import importlib.util
import os
import random
import shutil
import warnings

import pytest

from otel_rollout import dataframes, semconv
from otel_rollout.catalog import Run
from otel_rollout.errors import MissingExtraError, NoTracesError, RolloutTraceError
from tests.dataframes.made import damage, steps
from tests.trace_folder.recordings import START, make_span, make_trajectory, write_folder

pa = pytest.importorskip("pyarrow")

READERS = {
    "trajectories": dataframes.trajectories,
    "spans": dataframes.spans,
    "messages": dataframes.messages,
    "conversations": dataframes.conversations,
    "rewards": dataframes.rewards,
}


@pytest.fixture
def folder(tmp_path):
    """Two steps of two rollouts each, with rewards 0 and 1."""
    parts = {semconv.REWARD_PARTS: '{"format": 1, "length": 0.5}'}
    return write_folder(tmp_path / "traces", *steps([1, 2], **parts))


class TestTables:
    """What tables hold."""

    def test_a_row_for_each(self, folder):
        """Trajectories, spans, messages and parts of rewards have a row each, with their facts."""
        found = dataframes.trajectories(folder, columns=["step", "rollout_n", "reward", "has_root", "sample_index"])
        assert found.to_pylist() == [
            {"step": step, "rollout_n": rollout, "reward": float(rollout), "has_root": True, "sample_index": 0}
            for step in (1, 2)
            for rollout in (0, 1)
        ]
        kinds = dataframes.spans(folder, steps=1, columns=["kind", "step"])
        assert sorted(kinds["kind"].to_pylist()) == ["AGENT", "AGENT", "LLM", "LLM", "TOOL", "TOOL"]
        assert set(dataframes.messages(folder, steps={2})["step"].to_pylist()) == {2}
        parts = dataframes.rewards(folder, steps=range(2, 9), columns=["step", "name", "value"])
        assert (
            parts.to_pylist()
            == [{"step": 2, "name": "format", "value": 1.0}, {"step": 2, "name": "length", "value": 0.5}] * 2
        )

    def test_times(self, folder):
        """Times are instants in UTC, to the microsecond."""
        found = dataframes.trajectories(folder, columns=["start_time", "seconds"], steps=1)
        assert found.schema.field("start_time").type == pa.timestamp("us", "UTC")
        assert found["start_time"].cast(pa.int64()).to_pylist() == [START // 1000] * 2
        assert found["seconds"].to_pylist() == [1.0, 1.0]

    @pytest.mark.parametrize("table", READERS)
    def test_one_schema_whatever_there_is(self, table, folder, tmp_path):
        """A column that is empty has the type that it has elsewhere."""
        others = write_folder(tmp_path / "others", make_trajectory(7, None, 0, reward=None))
        schema = READERS[table](folder).schema
        assert READERS[table](others).schema == schema
        assert READERS[table](folder, steps=99).schema == schema
        assert "step" in schema.names
        assert schema.field("validate").type == pa.bool_()

    def test_numbers_of_prompts(self, folder, tmp_path):
        """They are integers where all are integers, which are found and sorted as such; one text makes texts of all."""
        others = write_folder(tmp_path / "others", *(make_trajectory(7, prompt, 0) for prompt in (10, 2)))
        frame = dataframes.trajectories(others).to_pandas()
        assert len(frame[frame.sample_index == 2]) == 1
        assert frame.sort_values("sample_index").sample_index.tolist() == [2, 10]
        write_folder(others, make_trajectory(8, "a", 0))
        mixed = dataframes.trajectories(others, columns=["sample_index", "rollout_n"]).to_pydict()
        assert {name: sorted(values) for name, values in mixed.items()} == {
            "sample_index": ["10", "2", "a"],
            "rollout_n": [0, 0, 0],
        }

    def test_pandas_has_null_in_integers_and_booleans(self, folder):
        """Columns that may have null keep their type in pandas, and others are numpy's."""
        frame = dataframes.spans(folder).to_pandas()
        assert frame["turn"].isna().any()
        assert frame.dtypes[["step", "turn", "validate"]].astype(str).to_list() == ["Int64", "Int64", "bool"]
        trained = dataframes.conversations(folder, columns=["trained", "turns"]).to_pandas().dtypes
        assert trained.astype(str).to_dict() == {"trained": "boolean", "turns": "int64"}

    def test_pandas_and_polars(self, folder):
        """Both have the same values."""
        pl = pytest.importorskip("polars")
        table = dataframes.trajectories(folder, columns=["trace_id", "step", "reward", "start_time", "validate"])
        pandas = table.to_pandas()
        assert pandas.groupby("step")["reward"].mean().to_dict() == {1: 0.5, 2: 0.5}
        assert str(pandas["start_time"].dtype) == "datetime64[us, UTC]"
        polars = pl.from_arrow(table)
        assert polars.to_dicts() == table.to_pylist()
        # The numbers lie where they lay.
        assert polars["reward"].to_arrow().buffers()[1].address == table["reward"].chunk(0).buffers()[1].address

    def test_several_folders(self, folder, tmp_path):
        """Several folders are one table."""
        more = write_folder(tmp_path / "more", make_trajectory(9, 0, 0))
        assert set(dataframes.trajectories([folder, more])["step"].to_pylist()) == {1, 2, 9}
        for wrong in ([folder, tmp_path / "none"], []):
            with pytest.raises(NoTracesError, match="there is no trace folder"):
                dataframes.spans(wrong)

    @pytest.mark.parametrize("steps", ["numpy.int64(2)", "numpy.array([2, 3])", "pandas.Series([2], [7])", "[2, None]"])
    def test_steps_of_other_libraries(self, folder, steps):
        """Integers and containers of numpy and pandas are steps, too."""
        libraries = {name: pytest.importorskip(name) for name in ("numpy", "pandas")}
        asked = eval(steps, libraries)
        for read in (dataframes.trajectories, dataframes.spans):
            assert set(read(folder, steps=asked)["step"].to_pylist()) == {2}


class TestConditions:
    """Which rows and columns are read."""

    def test_on_the_rows(self, folder):
        """A condition is SQL over any of the columns, of each table."""
        assert dataframes.trajectories(folder, where="reward > 0.5 AND status = 'completed' -- solved").num_rows == 2
        assert (
            dataframes.spans(folder, where="kind = 'LLM'", columns=["step"], steps=2).to_pylist() == [{"step": 2}] * 2
        )
        assert set(dataframes.rewards(folder, where="name = 'length'")["value"].to_pylist()) == {0.5}
        for nothing in ("role = 'nobody'", "0"):
            assert dataframes.messages(folder, where=nothing).num_rows == 0

    def test_on_trajectories_reads_only_their_spans(self, folder):
        """If a condition on spans is about trajectories, the others' spans are not read."""
        solved = "trace_id IN (SELECT trace_id FROM trajectories WHERE reward = 1)"
        whole = dataframes.messages(folder, where=f"NOT {solved}", columns=["content"])
        damage(folder)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert dataframes.messages(folder, where=f"NOT {solved}", columns=["content"]) == whole
        with pytest.warns(UserWarning, match="1 trajectory can't be read"):
            dataframes.messages(folder, where=solved)

    @pytest.mark.parametrize(
        ("table", "given", "said"),
        [
            ("trajectories", {"where": "rewrd > 0"}, "there is no column rewrd; did you mean reward?"),
            ("messages", {"where": "contnt = ''"}, "there is no column contnt; did you mean content?"),
            ("spans", {"columns": ["knd"]}, "there is no column knd in spans; did you mean 'kind'?"),
            ("spans", {"columns": ["reward", "€"]}, "there is no column reward in spans"),
            ("trajectories", {"where": '"rewrd" > 0'}, "there is no column rewrd; did you mean reward?"),
            ("trajectories", {"where": "WHERE step = 1"}, "without the word WHERE"),
            ("spans", {"columns": []}, "columns is a list with one name or more"),
            ("trajectories", {"columns": "step"}, "columns is a list with one name or more"),
            ("trajectories", {"steps": "1"}, "steps is a whole number, or a range"),
            ("spans", {"steps": 1.0}, "steps is a whole number, or a range"),
            ("trajectories", {"where": "1); DELETE FROM trajectories; --"}, "a question is one SELECT"),
        ],
    )
    def test_message_names_what_was_meant(self, table, given, said, folder):
        """A misspelt column is told with the one that is near, and a condition only reads."""
        with pytest.raises(RolloutTraceError, match=said.replace("?", r"\?")):
            READERS[table](folder, **given)
        assert dataframes.trajectories(folder).num_rows == 4


class TestKept:
    """Rows of spans are kept with the catalog once they are read."""

    @pytest.fixture
    def cache(self, tmp_path, monkeypatch):
        """An empty cache."""
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        return tmp_path / "cache"

    def test_are_read_once(self, folder, cache):
        """A second table, with or without a condition, needs no frame; whole steps alone are kept."""
        whole = dataframes.messages(folder)
        damage(folder)
        assert dataframes.messages(folder) == whole
        assert dataframes.messages(folder, steps=2, where="role = 'user'", columns=["content"]).num_rows == 2
        shutil.rmtree(cache)
        with pytest.warns(UserWarning, match="1 trajectory can't be read"):
            assert dataframes.messages(folder).num_rows < whole.num_rows

    def test_are_told_to_lack_what_could_not_be_read(self, folder, cache):
        """Each table, and each question, says what it lacks, the first as well as later ones."""
        damage(folder)
        for _ in range(2):
            with pytest.warns(UserWarning, match="1 trajectory can't be read"):
                dataframes.spans(folder)
            assert len(Run([folder]).query("SELECT 1 FROM spans", max_rows=1, seconds=60).unreadable) == 1

    def test_are_compressed(self, cache, tmp_path):
        """Although each turn has all messages before it, the cache takes a part of their bytes."""
        text = random.Random(7).randbytes(200_000).hex()
        attributes = {semconv.SPAN_KIND: "LLM", semconv.STEP: 1}
        turns = [
            make_span(
                "generate",
                turn + 2,
                7,
                seconds=(turn, turn + 1),
                attributes={**attributes, semconv.INPUT_VALUE: text[: turn * 10_000]},
            )
            for turn in range(40)
        ]
        folder = write_folder(tmp_path / "long", [*turns, make_span("run", 1, 7, parent=None, seconds=(0, 40))])
        texts = dataframes.spans(folder)["input"].combine_chunks()
        # The write-ahead log goes with the connection.
        gc.collect()
        kept = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
        assert kept < texts.nbytes / 10


class TestDamage:
    """What can't be read."""

    def test_is_in_a_table_of_errors(self, folder):
        """A damaged trajectory is left out of spans with a warning, is in `errors`, and keeps its row of facts."""
        assert dataframes.errors(folder).num_rows == 0
        damage(folder)
        with pytest.warns(UserWarning, match="otel_rollout.dataframes.errors lists them"):
            found = dataframes.spans(folder)
        assert found.num_rows == 9
        assert found.schema.metadata[b"otel_rollout.unreadable"] == b"1"
        [error] = dataframes.errors(folder, steps=2).to_pylist()
        [lost] = set(dataframes.trajectories(folder)["trace_id"].to_pylist()) - set(found["trace_id"].to_pylist())
        assert (error["trace_id"], error["step"]) == (lost, 2)
        assert "is damaged" in error["error"]
        assert error["file"].endswith(".otlp.zst")

    def test_torn_frames_are_told(self, folder):
        """A frame that is cut off is in a warning of each table."""
        [path] = folder.rglob("*.otlp.zst")
        os.truncate(path, path.stat().st_size - 100)
        for read in READERS.values():
            with pytest.warns(UserWarning, match="skipped in .*; otel_rollout.dataframes.errors has the place"):
                read(folder)


class TestWithoutArrow:
    """What is said where pyarrow is not installed."""

    def test_names_the_extra(self, folder, monkeypatch):
        """The error has the line that installs it."""
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        for read in (*READERS.values(), dataframes.errors):
            with pytest.raises(MissingExtraError, match=r"pyarrow.*\[data\]"):
                read(folder)
