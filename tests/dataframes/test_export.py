"""`otel-rollout export`: Parquet tables that pandas, polars and DuckDB read, written while training goes on."""

from __future__ import annotations

import fcntl
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from otel_rollout import dataframes, semconv
from otel_rollout.cli.main import main
from otel_rollout.folder.folder_writer import FolderWriter
from tests.dataframes.made import SECRET, damage, steps
from tests.trace_folder.recordings import make_span, make_trajectory, trace_id_of, write_folder

pytest.importorskip("pyarrow")
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

TABLES = ("trajectories", "spans", "messages", "conversations", "rewards")
PARTS = {semconv.REWARD_PARTS: '{"format": 1, "length": 0.5}'}
EXPORT = "import sys; from otel_rollout.cli.main import main; sys.exit(main(['export', *sys.argv[1:]]))"
SECONDS = 120.0


@pytest.fixture
def folder(tmp_path):
    """Three steps of two rollouts each, and a validation of the last."""
    return write_folder(tmp_path / "traces", *steps([1, 2, 3], **PARTS), make_trajectory(3, 0, validate=True))


@pytest.fixture
def place(tmp_path):
    return tmp_path / "tables"


def export(folder: Path, place: object, code: int = 0, *options: str) -> None:
    """Export a folder."""
    assert main(["export", str(folder), "--to", "parquet", str(place), *options]) == code


def files(place: Path) -> dict[str, tuple[int, int]]:
    """Return the files of an export by their names, each with what tells whether it was written again."""
    return {
        path.relative_to(place).as_posix(): (path.stat().st_ino, path.stat().st_mtime_ns)
        for table in TABLES
        # Not the folder of unfinished files, where they come and go.
        for path in (place / table).rglob("*.*")
    }


def rows(place: Path, table: str) -> list[dict[str, object]]:
    """Return the rows of an exported table in a fixed order."""
    found = pads.dataset(place / table, partitioning="hive", format="parquet").to_table().to_pylist()
    return sorted(found, key=repr)


class TestTables:
    """What is written."""

    def test_has_what_the_folder_has(self, folder, place, capsys):
        """Each table has the rows and columns of the data frame, with the partition's columns from the names."""
        export(folder, place)
        assert capsys.readouterr().out.startswith(
            f"4 steps written to {place}: 7 trajectories, 12 parts of rewards, 21 spans, 21 messages, 7 conversations\n"
        )
        for table in TABLES:
            names = pq.read_schema(next((place / table).rglob("*.parquet"))).names
            expected = getattr(dataframes, table)(folder, columns=[*names, "step"]).to_pylist()
            wanted = [{**row, "experiment_name": "exp"} for row in expected]
            assert rows(place, table) == sorted(({**row, "step": row.pop("step")} for row in wanted), key=repr)
        assert sorted(files(place)) == sorted(
            f"{table}/experiment_name=exp/step={step}/{name}.parquet"
            for table in TABLES
            for step, name in [(1, "training"), (2, "training"), (3, "training"), (3, "validation")]
        )

    def test_other_programs_read_it(self, folder, place):
        """DuckDB, polars and pandas read the tables with their partitions."""
        duckdb, pl, pd = (pytest.importorskip(name) for name in ("duckdb", "polars", "pandas"))
        export(folder, place)
        sql = f"""SELECT t.step, r.name, avg(value) FROM '{place}/rewards/**/*.parquet' r
            JOIN '{place}/trajectories/**/*.parquet' t USING (trace_id)
            WHERE NOT t.validate GROUP BY ALL ORDER BY ALL"""
        parts = [(step, name, value) for step in (1, 2, 3) for name, value in (("format", 1.0), ("length", 0.5))]
        assert duckdb.sql(sql).fetchall() == parts
        lazy = pl.scan_parquet(place / "trajectories", hive_partitioning=True)
        means = lazy.filter(~pl.col("validate")).group_by("step").agg(pl.col("reward").mean()).collect()
        assert dict(means.sort("step").rows()) == {1: 0.5, 2: 0.5, 3: 0.5}
        assert pd.read_parquet(place / "spans", filters=[("step", "==", 2)])["kind"].value_counts().to_dict() == {
            "AGENT": 2,
            "LLM": 2,
            "TOOL": 2,
        }

    def test_one_schema(self, place, tmp_path):
        """Each file of a table has the same schema, also where a column is empty or of another type in SQL."""
        odd = make_trajectory(2, "a prompt", 0, reward=None)
        export(
            write_folder(tmp_path / "traces", make_trajectory(1, 3, 0, **PARTS), odd, [make_span("x", 7, 99)]), place
        )
        assert {row["sample_index"] for row in rows(place, "trajectories")} == {None, "3", "a prompt"}
        assert {row["rollout_n"] for row in rows(place, "trajectories")} == {None, 0}
        for table in TABLES:
            first, *others = [pq.read_schema(path) for path in (place / table).rglob("*.parquet")]
            assert len(others) == 2
            assert all(each.equals(first) for each in others)

    def test_names_of_partitions(self, place, tmp_path):
        """Any experiment is read back by its name; none, and no step, are null."""
        duckdb = pytest.importorskip("duckdb")
        names = ("a/b=c %2F", "ünï 'x'", "..")
        folder = write_folder(
            tmp_path / "traces",
            *(make_trajectory(1, at, experiment=name) for at, name in enumerate(names)),
            [make_span("alone", 7, 99, parent=None)],
        )
        export(folder, place)
        wanted = {(1, name) for name in names} | {(None, None)}
        assert {(row["step"], row["experiment_name"]) for row in rows(place, "spans")} == wanted
        found = duckdb.sql(f"SELECT DISTINCT step, experiment_name FROM '{place}/spans/**/*.parquet'").fetchall()
        assert set(found) == wanted

    def test_long_names(self, place, tmp_path):
        """Two experiments whose names are too long for a folder have one each, and their files have the names."""
        names = ["実験" * 60 + end for end in "ab"]
        recorded = [make_trajectory(1, at, experiment=name) for at, name in enumerate(names)]
        folder = write_folder(tmp_path / "traces", *recorded)
        export(folder, place)
        found = {row["experiment_name"][:12] for row in rows(place, "spans")}
        assert found == {"実験" * 6}
        paths = list((place / "spans").rglob("*.parquet"))
        kept = {pq.read_metadata(path).metadata[b"otel_rollout.experiment_name"].decode() for path in paths}
        assert kept == set(names)

    def test_pandas_with_any_step(self, place, tmp_path):
        """pandas reads a table with large steps, and without a step, by the partitioning that the docs name."""
        pd = pytest.importorskip("pandas")
        export(write_folder(tmp_path / "traces", *steps([1, 3_000_000_000, None], rollouts=1)), place)
        fields = pads.partitioning(pa.schema({"experiment_name": pa.string(), "step": pa.int64()}), flavor="hive")
        found = pd.read_parquet(place / "trajectories", partitioning=fields)
        assert sorted(found["step"].fillna(-1)) == [-1, 1, 3_000_000_000]

    def test_redaction_is_told(self, place, tmp_path, capsys):
        """The summary, and each file, tell how many values redaction had replaced, in which columns."""
        export(write_folder(tmp_path / "traces", make_trajectory(payload=SECRET)), place)
        assert "redaction had replaced" in (told := capsys.readouterr().out)
        assert "spans.input 6, spans.output 6" in told
        [path] = (place / "spans").rglob("*.parquet")
        assert json.loads(pq.read_metadata(path).metadata[b"otel_rollout.redacted"]) == {"input": 6, "output": 6}

    def test_damage_is_mended(self, place, tmp_path, capsys):
        """A step with a trajectory that can't be read is exported again once it can; until then each call tells."""
        folder = write_folder(tmp_path / "damaged", *steps([1]))
        [path] = folder.rglob("*.otlp.zst")
        whole = path.read_bytes()
        damage(folder)
        export(folder, place, 1)
        capsys.readouterr()
        export(folder, place, 1)
        assert "the spans of 1 trajectory can't be read" in capsys.readouterr().err
        path.write_bytes(whole)
        export(folder, place)
        assert len(rows(place, "spans")) == 6
        export(folder, place)
        assert capsys.readouterr().out.endswith("nothing new; 1 was there already\n")


class TestAgain:
    """What a further call does."""

    def test_steps_are_added_once_they_have_finished(self, place, tmp_path, capsys):
        """While a process writes the folder, its last step waits; those before are exported once."""
        writer = FolderWriter(tmp_path / "traces")
        for spans in steps([1, 2]):
            writer.write(spans)
        export(tmp_path / "traces", place)
        assert "not finished: step 2 of exp" in capsys.readouterr().out
        assert {row["step"] for row in rows(place, "spans")} == {1}
        before = files(place)
        # A child of a trajectory of step 2, whose root has not ended.
        writer.write(make_trajectory(2, 5)[:1])
        for spans in steps([3]):
            writer.write(spans)
        export(tmp_path / "traces", place)
        assert "not finished: step 2 of exp, step 3 of exp" in capsys.readouterr().out
        assert files(place) == before
        writer.write(make_trajectory(2, 5)[1:])
        writer.close()
        export(tmp_path / "traces", place)
        assert {row["step"] for row in rows(place, "spans")} == {1, 2, 3}
        assert {name: files(place)[name] for name in before} == before

    def test_late_rewards(self, folder, place, capsys):
        """A step that has got a reward since is written anew, and the others are not."""
        export(folder, place)
        before = files(place)
        late = {semconv.STEP: 2, semconv.REWARD: 7.0}
        write_folder(folder, [make_span("annotate", 9, trace_id_of(2, 0, 0), seconds=(2, 2), attributes=late)])
        capsys.readouterr()
        export(folder, place)
        assert "1 step written" in (told := capsys.readouterr().out)
        assert "1 of them anew" in told
        changed = {name for name, status in files(place).items() if before[name] != status}
        assert {Path(name).parent.name for name in changed} == {"step=2"}
        assert sorted(row["reward"] for row in rows(place, "trajectories") if row["step"] == 2) == [1.0, 7.0]

    def test_first_text_among_numbers(self, folder, place, capsys):
        """Once a prompt is a text, the steps before are written anew: all files of a table have one type."""
        export(folder, place)
        pd = pytest.importorskip("pandas")
        numbers = pd.read_parquet(place / "trajectories")["sample_index"]
        assert (str(numbers.dtype), set(numbers)) == ("Int64", {0})
        write_folder(folder, make_trajectory(4, "a"))
        capsys.readouterr()
        export(folder, place)
        assert "5 steps written" in (told := capsys.readouterr().out)
        assert "4 of them anew" in told
        assert set(pd.read_parquet(place / "trajectories")["sample_index"]) == {"0", "a"}

    def test_nothing_is_lost_there(self, folder, place, tmp_path, capsys):
        """A step is left as it is if it has trajectories that this folder lacks: another folder's."""
        export(folder, place)
        before = rows(place, "spans")
        other = write_folder(tmp_path / "other", make_trajectory(2, 77), make_trajectory(4, 77))
        export(other, place, 1)
        assert "left as they are: step 2 of exp" in capsys.readouterr().err
        assert [row for row in rows(place, "spans") if row["step"] != 4] == before
        main(["export", str(folder), str(other), "--to", "parquet", str(place)])
        assert len(rows(place, "trajectories")) == 9

    def test_missing_tables(self, folder, place):
        """A file that is gone is written again, and one that is damaged."""
        export(folder, place)
        before = files(place)
        shutil.rmtree(place / "spans" / "experiment_name=exp" / "step=2")
        export(folder, place)
        assert files(place).keys() == before.keys()
        [damaged, _] = (place / "trajectories" / "experiment_name=exp" / "step=3").iterdir()
        data = bytearray(damaged.read_bytes())
        data[4:400] = b"\xff" * 396
        damaged.write_bytes(data)
        write_folder(folder, make_trajectory(3, 9), make_trajectory(3, 9, validate=True))
        export(folder, place)
        assert len(rows(place, "trajectories")) == 9

    def test_two_at_once(self, folder, place, capsys):
        """A second export of one place is refused while the first goes on."""
        place.mkdir()
        other = os.open(place, os.O_RDONLY)
        fcntl.flock(other, fcntl.LOCK_EX)
        export(folder, place, 2)
        os.close(other)
        assert "another export writes" in capsys.readouterr().err
        export(folder, place)


class TestFaults:
    """What is left by an export that ends in its middle."""

    def start(self, folder: Path, place: Path, **options) -> subprocess.Popen[str]:
        """Start an export in a process of its own."""
        command = [sys.executable, "-c", EXPORT, str(folder), "--to", "parquet", str(place)]
        return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, **options)

    @pytest.mark.slow
    def test_kills(self, place, tmp_path):
        """Whenever it is killed, each file is whole, and further calls end with what one call writes."""
        folder = write_folder(tmp_path / "traces", *steps(range(1, 13), rollouts=4, **PARTS))
        export(folder, tmp_path / "whole")
        chance = random.Random(7)
        total = len(files(tmp_path / "whole"))
        for _ in range(5):
            process = self.start(folder, place)
            there = len(files(place)) if place.exists() else 0
            wanted, end = there + chance.randrange(1, 9), time.monotonic() + SECONDS
            while process.poll() is None and (not place.exists() or len(files(place)) < wanted):
                assert time.monotonic() < end
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            for table in TABLES:
                for path in (place / table).rglob("*"):
                    assert not path.is_file() or pq.read_table(path).num_rows
            if there >= total:
                break
        export(folder, place)
        for table in TABLES:
            assert rows(place, table) == rows(tmp_path / "whole", table)
        assert sorted(files(place)) == sorted(files(tmp_path / "whole"))

    def test_full_disk(self, place, tmp_path):
        """It names the step and the reason, leaves no half file, and the next call goes on."""
        noise = random.Random(1).randbytes(300_000).hex()
        large = make_trajectory(2, payload=json.dumps(noise))
        folder = write_folder(tmp_path / "traces", make_trajectory(1), large, make_trajectory(3))

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

        export(folder, tmp_path / "whole")
        process = self.start(folder, place, preexec_fn=limit)
        _, told = process.communicate(timeout=SECONDS)
        # Where it takes long, lines of its progress come before.
        assert process.returncode == 1
        assert any(line.startswith("step 2 of exp and later ones can't") for line in told.splitlines()), told
        assert {row["step"] for row in rows(place, "trajectories")} == {1}
        assert all(pq.read_table(path).schema.names for path in place.rglob("*.parquet"))
        assert {path.name for path in place.iterdir()} == set(TABLES)
        export(folder, place)
        for table in TABLES:
            assert rows(place, table) == rows(tmp_path / "whole", table)

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["--to", "csv", "x"], "there is no form 'csv'"),
            (["--to", "parquet", "nothing://x/y"], "nothing://x/y"),
            (["--to", "parquet", ""], "'' names no place"),
            (["--to", "parquet", "s3://"], "'s3://' names no place"),
            (["--to", "parquet", "x\udcff"], "'x\\udcff' names no place"),
        ],
    )
    def test_wrong_command_lines(self, folder, arguments, said, capsys):
        """A form or a store that there is not is an error that says so."""
        assert main(["export", str(folder), *arguments]) == 2
        assert said in capsys.readouterr().err
        assert main(["export", str(folder), "--to", "parquet", f"{folder}/../traces"]) == 2
        assert "is the trace folder" in capsys.readouterr().err


@pytest.mark.integration
class TestS3:
    """A bucket."""

    def test_same_as_a_folder(self, folder, tmp_path, s3_server, monkeypatch, capsys):
        """A bucket gets the files that a folder gets, a second export adds nothing, and a late reward is added."""
        s3fs = pytest.importorskip("s3fs")
        for name, value in s3_server.variables.items():
            monkeypatch.setenv(name, value)
        bucket = f"s3://b-{os.getpid()}-{time.time_ns()}/run 7"
        s3 = s3fs.S3FileSystem()
        s3.mkdir(bucket.split("/")[2])
        export(folder, bucket)
        export(folder, tmp_path / "tables")
        capsys.readouterr()
        export(folder, bucket)
        assert capsys.readouterr().out == "nothing new; 4 were there already\n"
        late = {semconv.STEP: 2, semconv.REWARD: 7.0}
        write_folder(folder, [make_span("annotate", 9, trace_id_of(2, 0, 0), seconds=(2, 2), attributes=late)])
        export(folder, bucket)
        export(folder, tmp_path / "tables")
        s3.invalidate_cache()
        s3.get(bucket, str(tmp_path / "got"), recursive=True)
        for table in TABLES:
            assert rows(tmp_path / "got", table) == rows(tmp_path / "tables", table)
        assert sorted(files(tmp_path / "got")) == sorted(files(tmp_path / "tables"))
