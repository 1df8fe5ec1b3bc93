"""Adds the finished steps of trace folders to Parquet tables, a file for each table and step.

<place>/<table>/experiment_name=<experiment>/step=<step>/training.parquet, and validation.parquet for validation passes.
`trajectories` comes last: its metadata has the fingerprint of the exported step, then its unreadable trajectories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from otel_rollout.catalog import Run, StepSummary
from otel_rollout.catalog.columns import Column
from otel_rollout.catalog.span_columns import OF_SPANS, batches_of
from otel_rollout.catalog.tables import COLUMNS
from otel_rollout.dataframes.arrow import REDACTED_KEY, UNREADABLE_KEY, batch_of, is_mixed, redacted_in, schema_of
from otel_rollout.dataframes.destination import Destination
from otel_rollout.dataframes.frames import error_of, take_batches

Read = TypeVar("Read")

TABLES: Final = ("spans", "messages", "conversations", "rewards", "trajectories")
"""The tables, in the order in which a step's files come."""
PARTITIONS: Final = ("experiment_name", "step")
"""The columns that are in the names of folders, and not in the files."""
FINGERPRINT_KEY: Final = b"otel_rollout.fingerprint"
EXPERIMENT_KEY: Final = b"otel_rollout.experiment_name"
MAX_NAME: Final = 255 - len("experiment_name=")
"""The most bytes of an experiment in the name of a folder: file systems take 255."""
NOTHING: Final = "__HIVE_DEFAULT_PARTITION__"
"""The name for null that Hive has given to all."""

_COLUMNS: Final[Mapping[str, Sequence[Column]]] = {
    table: [each for each in COLUMNS[table] if each.name not in PARTITIONS] for table in TABLES
}
_SECONDS: Final = 3600.0


class Partition(NamedTuple):
    """The trajectories of one file: a step's of an experiment, or of its validation."""

    experiment: str | None
    step: int | None
    validate: bool

    @property
    def steps(self) -> set[None] | int:
        """Its step, as `Run.read` takes it."""
        return {None} if self.step is None else self.step

    def place_of(self, table: str) -> str:
        """Return the place of its file of a table."""
        experiment = _folder_name(self.experiment) if self.experiment else NOTHING
        step = NOTHING if self.step is None else self.step
        name = "validation" if self.validate else "training"
        return f"{table}/experiment_name={experiment}/step={step}/{name}.parquet"

    def __str__(self) -> str:
        step = "no step" if self.step is None else f"step {self.step}"
        experiment = f" of {self.experiment}" if self.experiment else ""
        return f"{step}'s validation{experiment}" if self.validate else f"{step}{experiment}"


def _folder_name(experiment: str) -> str:
    """Return the name percent-encoded; of one that is too long, the beginning and a hash."""
    if len(name := quote(experiment, safe="")) <= MAX_NAME:
        return name
    digest = blake2b(experiment.encode(), digest_size=8).hexdigest()
    # A character takes twelve bytes at most.
    return f"{quote(experiment[: (MAX_NAME - len(digest) - 1) // 12], safe='')}-{digest}"


@dataclass
class ExportReport:
    """The counts of an export.

    Args:
        exported: The partitions that were written.
        again: The number of partitions that replaced others.
        present: The number of those that were there already.
        running: Those that are not finished.
        kept: Those that are left as they are there, with trajectories that the folders don't have.
        rows: The number of rows written, by table.
        redacted: The values that redaction had replaced, by table and column.
        unreadable: The trace ids of trajectories whose spans can't be read.
        failed: The partitions that can't be written, each with the error.
    """

    exported: list[Partition] = field(default_factory=list)
    again: int = 0
    present: int = 0
    running: list[Partition] = field(default_factory=list)
    kept: list[Partition] = field(default_factory=list)
    rows: Counter[str] = field(default_factory=Counter)
    redacted: Counter[str] = field(default_factory=Counter)
    unreadable: list[str] = field(default_factory=list)
    failed: dict[Partition, OSError] = field(default_factory=dict)


def export_parquet(
    run: Run, place: Destination, steps: Any, on_start: Callable[[int], Callable[[int], object]]
) -> ExportReport:
    """Write the finished steps that are not there yet, or have changed since.

    Args:
        run: The trace folders.
        place: The place.
        steps: Only these steps, as `Run.steps` takes them.
        on_start: Called with the bytes of trajectories to export, as OTLP; returns what is called with those done.

    Raises:
        NoTracesError: None of the folders has traces.
        OSError: The place can't be opened.
    """
    report = ExportReport()
    given_up: set[str | None] = set()
    with place.locked():
        names = place.names()
        waiting: list[tuple[Partition, str, int]] = []
        schemas = _schemas_of(run)
        for partition, fingerprint, size in _finished(run, steps, schemas, report):
            known = _read_exported(place, partition, lambda file: file.metadata.metadata or {})
            exported, *lacking = (known or {}).get(FINGERPRINT_KEY, b"").decode().split(" ")
            is_whole = names.issuperset(map(partition.place_of, TABLES))
            if exported == fingerprint and is_whole and _are_unreadable(run, lacking):
                report.present += 1
                report.unreadable += lacking
            elif not (_read_exported(place, partition, _ids_in) or set()) <= set(_ids(run, partition)):
                report.kept.append(partition)
            else:
                report.again += known is not None
                waiting.append((partition, fingerprint, size))
        on_done = on_start(sum(size for *_, size in waiting))
        for partition, fingerprint, size in waiting:
            try:
                # The next step would meet the same error, such as a full disk.
                if partition.experiment not in given_up:
                    _write_step(run, place, partition, fingerprint, schemas, report)
                    report.exported.append(partition)
            except OSError as error:
                given_up.add(partition.experiment)
                report.failed[partition] = error
            on_done(size)
    return report


def _schemas_of(run: Run) -> Mapping[str, pa.Schema]:
    """Return the schema of each table, which all of its files have."""
    mixed = [each.name for each in _COLUMNS["trajectories"] if is_mixed(each)]
    listed = ", ".join(f"total(typeof({name}) = 'text')" for name in mixed)
    sql = f"SELECT {listed} FROM trajectories"
    [counts], *_ = run.take(sql, lambda cursor: cursor.fetchall(), seconds=_SECONDS)
    texts = {name for name, count in zip(mixed, counts, strict=True) if count}
    return {table: schema_of(columns, texts) for table, columns in _COLUMNS.items()}


def _finished(
    run: Run, steps: Any, schemas: Mapping[str, pa.Schema], report: ExportReport
) -> Iterator[tuple[Partition, str, int]]:
    """Yield the steps that have finished, with a text that differs once they change, and their bytes as OTLP."""
    running = {(each.step, each.validate) for each in run.live().trajectories if each.is_alive} | run.open_steps()
    is_written = run.is_being_written()
    # Others than those that are asked for may have begun since.
    last: dict[str | None, int] = {}
    listed = run.steps()
    for each in listed:
        if each.step is not None:
            last[each.experiment_name] = max(last.get(each.experiment_name, each.step), each.step)
    wanted = {each.identity for each in (listed if steps is None else run.steps(steps))}

    def partition_of(each: StepSummary) -> Partition:
        return Partition(each.experiment_name, each.step, each.validate)

    chosen = sorted(
        (each for each in listed if each.identity in wanted),
        key=lambda each: (each.experiment_name or "", each.step is None, each.step or 0, each.validate),
    )
    for partition, group in groupby(chosen, partition_of):
        summaries = list(group)
        is_last = partition.step is None or partition.step == last[partition.experiment]
        if (partition.step, partition.validate) in running or (is_last and is_written):
            report.running.append(partition)
            continue
        yield partition, _fingerprint(summaries, schemas), sum(each.bytes for each in summaries)


def _fingerprint(summaries: Iterable[StepSummary], schemas: Mapping[str, pa.Schema]) -> str:
    """Return a text that differs once a step has other spans: whatever comes late, an annotation too, is a span."""
    counts = sorted(
        [each.trajectories, each.rootless, each.spans, each.bytes, each.start_time, each.end_time, each.redacted]
        for each in summaries
    )
    # Another version may have other columns, and the first text makes one of integers a column of texts.
    return blake2b(f"{counts} {schemas}".encode(), digest_size=16).hexdigest()


def _read_exported(place: Destination, partition: Partition, read: Callable[[pq.ParquetFile], Read]) -> Read | None:
    """Read a step's file of trajectories; return None if there is none, or it is damaged."""
    try:
        with pq.ParquetFile(place.path_of(partition.place_of("trajectories")), filesystem=place.files) as file:
            return read(file)
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException) as error:
        # Damage is an OSError of Arrow's, without a number.
        if getattr(error, "errno", None) is not None:
            raise
        return None


def _ids_in(file: pq.ParquetFile) -> set[str]:
    return set(file.read(["trace_id"])["trace_id"].to_pylist())


def _are_unreadable(run: Run, trace_ids: Sequence[str]) -> bool:
    with suppress(KeyError), run.one_look():
        return all(error_of(run.trajectory(trace_id)) for trace_id in trace_ids)
    return False


def _ids(run: Run, partition: Partition) -> list[str]:
    found, *_ = run.take(
        # Also of those that a later attempt of the run has overtaken since.
        f"SELECT trace_id FROM main.trajectories WHERE {_condition(partition)}",
        lambda cursor: [trace_id for (trace_id,) in cursor],
        seconds=_SECONDS,
    )
    return found


def _condition(partition: Partition) -> str:
    """Return the condition in SQL of a step's trajectories."""
    named = "NULL" if partition.experiment is None else "'" + partition.experiment.replace("'", "''") + "'"
    step = "NULL" if partition.step is None else partition.step
    return f"step IS {step} AND validate = {int(partition.validate)} AND experiment_name IS {named}"


def _write_step(
    run: Run,
    place: Destination,
    partition: Partition,
    fingerprint: str,
    schemas: Mapping[str, pa.Schema],
    report: ExportReport,
) -> None:
    """Write the files of a step, and count what is written."""
    unreadable: list[str] = []

    @contextmanager
    def new_file(table: str) -> Iterator[Callable[[pa.RecordBatch], None]]:
        """Give the function that writes a batch to the file of a table, as a row group."""
        rows = Counter({table: 0})
        redacted: Counter[str] = Counter()
        schema = schemas[table]

        def write(batch: pa.RecordBatch) -> None:
            if batch.num_rows:
                writer.write_batch(batch.cast(schema))
                rows[table] += batch.num_rows
                redacted.update(redacted_in(batch))

        with place.new_file(partition.place_of(table)) as file:
            writer = pq.ParquetWriter(file, schema, compression="zstd", store_schema=True)
            try:
                yield write
                writer.add_key_value_metadata(
                    {
                        FINGERPRINT_KEY: " ".join((fingerprint, *unreadable)).encode(),
                        EXPERIMENT_KEY: (partition.experiment or "").encode(),
                        REDACTED_KEY: orjson.dumps(redacted),
                        UNREADABLE_KEY: str(len(unreadable)).encode(),
                    }
                )
            except BaseException:
                # Closing it writes once more, which fails on a full disk.
                with suppress(OSError, pa.ArrowException):
                    writer.close()
                raise
            writer.close()
        report.rows.update(rows)
        report.redacted.update({f"{table}.{column}": count for column, count in redacted.items()})

    columns = {table: _COLUMNS[table] for table in OF_SPANS}
    own = (partition.validate, partition.experiment)
    read = (each for each in run.read(step=partition.steps) if (each.validate, each.experiment_name) == own)
    with ExitStack() as stack:
        writers = {table: stack.enter_context(new_file(table)) for table in columns}
        for batch in batches_of(read, columns, unreadable.append):
            for table, values in batch.items():
                writers[table](batch_of(columns[table], values))
    report.unreadable += unreadable
    condition = _condition(partition)
    of_rewards = f"trace_id IN (SELECT trace_id FROM trajectories WHERE {condition})"
    for table, where in (("rewards", of_rewards), ("trajectories", condition)):
        batches, _ = take_batches(run, table, _COLUMNS[table], f" WHERE {where}", partition.steps, _SECONDS)
        with new_file(table) as write:
            for each in batches:
                write(each)
