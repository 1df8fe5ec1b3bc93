"""`otel-rollout export`: write trace folders as Parquet tables."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_rollout.catalog import Run
from otel_rollout.cli.messages import complain
from otel_rollout.cli.options import READ, add_steps, default_folder, exit_codes
from otel_rollout.cli.progress import byte_progress
from otel_rollout.cli.reading import ProblemLog, redaction_note, show_progress
from otel_rollout.dataframes.frames import require_arrow
from otel_rollout.errors import ConfigurationError
from otel_rollout.text.plain_text import counted

if TYPE_CHECKING:
    from otel_rollout.dataframes.export import ExportReport, Partition

FORMS: Final = ("parquet",)
MAX_NAMES: Final = 10


NAMES: Final = {"rewards": "parts of rewards"}
"""Names in words of tables; the whole reward is a column of `trajectories`."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the description and the options of the command."""
    parser.description = """\
Write the steps of trace folders that have finished as Parquet tables:
trajectories, spans, messages, conversations and rewards, each partitioned by
experiment and step, with the columns of docs/reference/catalog.md. Run it
again while training goes on: it adds the steps that have finished since, writes
those anew that have got a late reward or other spans, and nothing else.

A step has finished if none of its trajectories runs, and a later one of the
experiment has begun or no process writes the folder.

examples:
  otel-rollout export --to parquet tables
  otel-rollout export rollout-traces --to parquet s3://bucket/run-7
"""
    parser.epilog = exit_codes(
        "all steps that have finished are there",
        failed="some could not be exported, or read; standard error has them",
        interrupted="interrupted; run it again to go on",
    )
    parser.add_argument(
        "folders",
        metavar="DIR",
        nargs="*",
        type=Path,
        help=f"{READ}; several are parts of one run (default: OTEL_ROLLOUT_DIR, else rollout-traces)",
    )
    parser.add_argument(
        "--to",
        nargs=2,
        metavar=("parquet", "PLACE"),
        required=True,
        help="the form, and a folder or an address such as s3://bucket/path",
    )
    add_steps(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    form, place = arguments.to
    if form not in FORMS:
        raise ConfigurationError(f"there is no form {form!r}: otel-rollout export --to parquet {place}")
    require_arrow()
    from otel_rollout.dataframes.destination import Destination
    from otel_rollout.dataframes.export import export_parquet

    problems = ProblemLog()
    folders = arguments.folders or [default_folder()]
    if Path(place).resolve() in [each.resolve() for each in folders]:
        raise ConfigurationError(f"{place} is the trace folder: write the tables to a folder of their own")
    recorded = Run(folders, problems.note, show_progress)
    recorded.require_folders()
    report = export_parquet(recorded, Destination(place), arguments.step, partial(byte_progress, "export"))
    problems.note_attempts(recorded, arguments)
    problems.print()
    for line in _notes(report):
        complain(line)
    for line in _summary(report, place):
        print(line)
    return 1 if report.kept or report.unreadable or report.failed else 0


def _summary(report: ExportReport, place: str) -> Iterator[str]:
    tables = ", ".join(f"{count:,} {NAMES.get(table, table)}" for table, count in report.rows.items())
    again = f", {report.again:,} of them anew" if report.again else ""
    were = "was" if report.present == 1 else "were"
    present = f"; {report.present:,} {were} there already" if report.present else ""
    running = f"; not finished: {_named(report.running)}" if report.running else ""
    written = f"{counted(len(report.exported), 'step')} written to {place}{again}" if report.exported else "nothing new"
    yield f"{written}{f': {tables}' if tables else ''}{present}{running}"
    if report.exported:
        yield redaction_note(report.redacted)


def _notes(report: ExportReport) -> Iterator[str]:
    if report.unreadable:
        number = counted(len(report.unreadable), "trajectory")
        yield f"the spans of {number} can't be read: they have none here; otel_rollout.dataframes.errors says why"
    if report.kept:
        yield (
            f"left as they are: {_named(report.kept)}; there are trajectories in them that the folder doesn't have: "
            "export all folders of the experiment together, or to another place"
        )
    if report.failed is not None:
        partition, error = report.failed
        yield f"{partition} and later ones can't be written: {error}; run it again to go on"


def _named(partitions: Iterable[Partition]) -> str:
    names = list(map(str, partitions))
    more = f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
    return f"{', '.join(names[:MAX_NAMES])}{more}"
