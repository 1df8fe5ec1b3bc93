"""`otel-rollout import`: add the OpenTelemetry Collector's files to a trace folder."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from otel_rollout.cli.messages import complain
from otel_rollout.cli.options import default_folder, exit_codes
from otel_rollout.cli.progress import byte_progress
from otel_rollout.files.file_lock import size_of
from otel_rollout.receive.importing import ImportReport, find_files, import_files
from otel_rollout.text.plain_text import counted

MAX_PROBLEMS: Final = 20
MAX_NAMES: Final = 3


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the description and the options of the command."""
    parser.description = """\
Add the spans of files that the Collector's `file` exporter has written to a
trace folder: OTLP JSON and protobuf, compressed or not, rotated or not; and the
OTLP JSON of other programs. Spans that the folder has are left out: importing a
file again, or once it has grown, adds what is new.
"""
    parser.epilog = exit_codes(
        "all spans of the files are in the folder",
        failed="some could not be read; what and why is on standard error",
        interrupted="interrupted; run it again to go on",
    )
    parser.add_argument("files", metavar="FILE|DIR", nargs="+", type=Path, help="files, or folders of files")
    parser.add_argument(
        "--into",
        metavar="DIR",
        type=Path,
        default=default_folder(),
        help="the trace folder (default: OTEL_ROLLOUT_DIR, else rollout-traces)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    files = find_files(arguments.files, arguments.into)
    with byte_progress("import", sum(size_of(path) for path, _ in files)) as on_progress:
        report = import_files(files, arguments.into, on_progress)
    for line in _notes(report):
        complain(line)
    doubles = f"; {report.doubles:,} were there already" if report.doubles else ""
    print(
        f"{counted(report.spans, 'span')} of {counted(report.traces, 'trajectory')} "
        f"from {counted(report.files, 'file')} added to {arguments.into}{doubles}"
    )
    return 0 if report.is_whole else 1


def _notes(report: ImportReport) -> Iterator[str]:
    for path in report.cut_off:
        yield f"{path} ends within a request, as it does while it is written: import it again later"
    if report.skipped:
        names = ", ".join(str(path) for path in report.skipped[:MAX_NAMES])
        more = f" and {len(report.skipped) - MAX_NAMES} more" if len(report.skipped) > MAX_NAMES else ""
        yield f"{counted(len(report.skipped), 'file')} without OTLP skipped: {names}{more}"
    if report.other_requests:
        yield f"{counted(report.other_requests, 'request')} without spans, such as metrics and logs"
    yield from report.problems[:MAX_PROBLEMS]
    if len(report.problems) > MAX_PROBLEMS:
        yield f"and {len(report.problems) - MAX_PROBLEMS:,} more problems"
