"""Adds the finished steps of trace folders to Parquet tables, a file for each table and step.

<place>/<table>/experiment_name=<experiment>/step=<step>/training.parquet, and validation.parquet for validation passes.
`trajectories` comes last: its metadata has the fingerprint of the exported step, if all of it could be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from otel_rollout.catalog import Run, StepSummary
from otel_rollout.catalog.columns import Column
from otel_rollout.catalog.span_columns import OF_SPANS, batches_of
from otel_rollout.catalog.tables import COLUMNS
from otel_rollout.dataframes.arrow import (
    REDACTED_KEY,
    SECONDS,
    UNREADABLE_KEY,
    batch_of,
    is_mixed,
    redacted_in,
    schema_of,
    take_batches,
)
from otel_rollout.dataframes.destination import Destination
from otel_rollout.folder.selection import Selection

TABLES: Final = ("trajectories", "rewards", *OF_SPANS)
"""The tables; a step's files come in the reverse order."""
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


class Partition(NamedTuple):
    """The trajectories of one file: a step's of an experiment, or of its validation."""

    experiment: str | None
    step: int | None
    validate: bool

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
        failed: The partition that can't be written, with the error; those after it were not tried.
    """

    exported: list[Partition] = field(default_factory=list)
    again: int = 0
    present: int = 0
    running: list[Partition] = field(default_factory=list)
    kept: list[Partition] = field(default_factory=list)
    rows: Counter[str] = field(default_factory=Counter)
    redacted: Counter[str] = field(default_factory=Counter)
    unreadable: list[str] = field(default_factory=list)
    failed: tuple[Partition, OSError] | None = None


def export_parquet(
    run: Run, place: Destination, steps: Any, progress: Callable[[int], AbstractContextManager[Callable[[int], object]]]
) -> ExportReport:
    """Write the finished steps that are not there yet, or have changed since.

    Args:
        run: The trace folders.
        place: The place.
        steps: Only these steps, as `Run.steps` takes them.
        progress: Called with the bytes of trajectories to export, as OTLP; gives what is called with those done.

    Raises:
        NoTracesError: None of the folders has traces.
        OSError: The place can't be opened.
    """
    report = ExportReport()
    with place.locked():
        names = place.names()
        schemas = _schemas_of(run)
        waiting = [
            (partition, fingerprint, size)
            for partition, fingerprint, size in _finished(run, steps, schemas, report)
            if _is_wanted(run, place, partition, fingerprint, names, report)
        ]
        with progress(sum(size for *_, size in waiting)) as on_done:
            for partition, fingerprint, size in waiting:
                try:
                    _write_step(run, place, partition, fingerprint, schemas, report)
                except OSError as error:
                    # The next step would meet the same one, such as a full disk.
                    report.failed = partition, error
                    break
                report.exported.append(partition)
                on_done(size)
    return report


def _schemas_of(run: Run) -> Mapping[str, pa.Schema]:
    """Return the schema of each table, which all of its files have."""
    mixed = [each.name for each in _COLUMNS["trajectories"] if is_mixed(each)]
    listed = ", ".join(f"total(typeof({name}) = 'text')" for name in mixed)
    sql = f"SELECT {listed} FROM trajectories"
    [counts], *_ = run.take(sql, lambda cursor: cursor.fetchall(), seconds=SECONDS)
    texts = {name for name, count in zip(mixed, counts, strict=True) if count}
    return {table: schema_of(columns, texts) for table, columns in _COLUMNS.items()}


def _finished(
    run: Run, steps: Any, schemas: Mapping[str, pa.Schema], report: ExportReport
) -> Iterator[tuple[Partition, str, int]]:
    """Yield the steps that have finished, with a text that differs once they change, and their bytes as OTLP."""
    running = {(each.step, each.validate) for each in run.live().trajectories if each.is_alive} | run.open_steps()
    is_written = run.is_being_written()
    partitions: dict[Partition, list[StepSummary]] = {}
    # In the order of steps, those without one last.
    for each in run.steps():
        partitions.setdefault(Partition(each.experiment_name, each.step, each.validate), []).append(each)
    last = {each.experiment: each.step for each in partitions if each.step is not None}
    for partition, summaries in partitions.items():
        experiment, step, validate = partition
        if not Selection(steps).takes_step(step, validate=validate):
            continue
        if (step, validate) in running or (is_written and step in (None, last.get(experiment))):
            report.running.append(partition)
        else:
            yield partition, _fingerprint(summaries, schemas), sum(each.bytes for each in summaries)


def _fingerprint(summaries: Iterable[StepSummary], schemas: Mapping[str, pa.Schema]) -> str:
    """Return a text that differs once a step has other spans: whatever comes late, an annotation too, is a span."""
    counts = sorted(
        [each.trajectories, each.rootless, each.spans, each.bytes, each.start_time, each.end_time, each.redacted]
        for each in summaries
    )
    # Another version may have other columns, and the first text makes one of integers a column of texts.
    return blake2b(f"{counts} {schemas}".encode(), digest_size=16).hexdigest()


def _is_wanted(
    run: Run, place: Destination, partition: Partition, fingerprint: str, names: set[str], report: ExportReport
) -> bool:
    """Return True if a step is to be written; count it if it is there, and is not to be replaced."""
    try:
        with pq.ParquetFile(partition.place_of("trajectories"), filesystem=place.files) as file:
            is_same = (file.metadata.metadata or {}).get(FINGERPRINT_KEY) == fingerprint.encode()
            if is_same and names.issuperset(map(partition.place_of, TABLES)):
                report.present += 1
                return False
            there = file.read(["trace_id"])["trace_id"].to_pylist()
    except (OSError, pa.ArrowException) as error:
        # Damage is an OSError of Arrow's, without a number.
        if getattr(error, "errno", None) is None or isinstance(error, FileNotFoundError):
            return True
        raise
    # Also those that a later attempt of the run has overtaken since.
    select = f"SELECT trace_id FROM main.trajectories WHERE {_condition(partition)}"
    known, *_ = run.take(select, lambda cursor: {trace_id for (trace_id,) in cursor}, seconds=SECONDS)
    if not known.issuperset(there):
        report.kept.append(partition)
        return False
    report.again += 1
    return True


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
    rows: Counter[str] = Counter()
    redacted: dict[str, Counter[str]] = {table: Counter() for table in TABLES}
    unreadable: list[str] = []
    with ExitStack() as stack:
        # They are closed in the reverse order, and one that fails keeps those after it from their names.
        files = {table: stack.enter_context(place.new_file(partition.place_of(table))) for table in TABLES}
        writers = {
            table: stack.enter_context(pq.ParquetWriter(file, schemas[table], compression="zstd"))
            for table, file in files.items()
        }
        for table, batch in _batches_of(run, partition, unreadable):
            if batch.num_rows:
                writers[table].write_batch(batch.cast(schemas[table]))
                rows[table] += batch.num_rows
                redacted[table].update(redacted_in(batch))
        for table, writer in writers.items():
            writer.add_key_value_metadata(
                {
                    FINGERPRINT_KEY: b"" if unreadable else fingerprint.encode(),
                    EXPERIMENT_KEY: (partition.experiment or "").encode(),
                    REDACTED_KEY: orjson.dumps(redacted[table]),
                    UNREADABLE_KEY: str(len(unreadable)).encode(),
                }
            )
    report.rows.update({table: rows[table] for table in TABLES})
    report.redacted.update({f"{table}.{name}": count for table in TABLES for name, count in redacted[table].items()})
    report.unreadable += unreadable


def _batches_of(run: Run, partition: Partition, unreadable: list[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of a step's tables, and collect the trajectories whose spans can't be read."""
    own = (partition.validate, partition.experiment)
    step: set[None] | int = {None} if partition.step is None else partition.step
    read = (each for each in run.read(step=step) if (each.validate, each.experiment_name) == own)
    for of_spans in batches_of(read, {table: _COLUMNS[table] for table in OF_SPANS}, unreadable.append):
        for table, values in of_spans.items():
            yield table, batch_of(_COLUMNS[table], values)
    condition = _condition(partition)
    of_rewards = f"trace_id IN (SELECT trace_id FROM trajectories WHERE {condition})"
    for table, where in (("rewards", of_rewards), ("trajectories", condition)):
        for batch in take_batches(run, table, _COLUMNS[table], f" WHERE {where}", step)[0]:
            yield table, batch
