"""Helpers of the commands that read a trace folder: selection, what could not be read, JSON."""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

# Its names are imported at first use: the help needs none of them.
from otel_rollout import catalog
from otel_rollout.catalog.grouping import prompt_order
from otel_rollout.cli.messages import complain
from otel_rollout.cli.progress import count_bars
from otel_rollout.errors import MissingExtraError
from otel_rollout.folder.selection import Filters
from otel_rollout.installing import install_line
from otel_rollout.text.plain_text import counted

if TYPE_CHECKING:
    from otel_rollout.catalog import StepSummary
    from otel_rollout.folder.reader import RecordedTrajectory
    from otel_rollout.folder.stored_file import ReadProblem

UNESCAPED: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control and format characters that JSON leaves unescaped, though a terminal acts on them."""

SHORT_ID: Final = 8
"""The digits of a trace id that are shown, unless more are needed to tell two apart."""
MAX_NAMES: Final = 20
"""The most names of experiments, or steps, in a message."""


class ProblemLog:
    """Counts what could not be read."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Path]] = Counter()
        self._messages: dict[str, None] = {}

    def note(self, problem: ReadProblem) -> None:
        """Count a problem; the `on_problem` of `read`."""
        self._counts[problem.what, problem.path] += 1

    def counts(self) -> dict[str, int]:
        """Return the number of problems of each kind."""
        found: Counter[str] = Counter()
        for (what, _), count in self._counts.items():
            found[what] += count
        return dict(found)

    def complain(self, message: str) -> None:
        """Keep a message for `print`."""
        self._messages.setdefault(message)

    def note_attempts(self, run: catalog.Run, arguments: argparse.Namespace) -> None:
        """Keep a message for each attempt of a resumed run of which trajectories are left out."""
        step = getattr(arguments, "step", None)
        wanted: Container[int | None] | None = (step,) if isinstance(step, int) else step
        for each in run.overtaken() if getattr(arguments, "attempt", None) is None else ():
            if wanted is None or any(step in wanted for step in range(each.first, each.last + 1)):
                self._messages.setdefault(each.note)

    def print(self) -> None:
        """Print a line for each file with problems, and the messages, on standard error."""
        for message in self._messages:
            complain(message)
        for (what, path), count in self._counts.items():
            complain(f"{counted(count, what)} skipped in {path}")


def filters_of(arguments: argparse.Namespace) -> Filters:
    """Return the command line's filters as keyword arguments of `read`."""
    return cast(Filters, {name: getattr(arguments, name) for name in Filters.__optional_keys__})


def selected(
    arguments: argparse.Namespace, problems: ProblemLog, trace: str = "", *, has_inferred: bool = False
) -> Iterator[RecordedTrajectory]:
    """Return the trajectories of the command line's folder that its filters let through.

    Args:
        arguments: The arguments.
        problems: Takes what can't be read.
        trace: The beginning of the trace id.
        has_inferred: True if all of their facts are asked for.
    """
    run = catalog.Run([arguments.folder], problems.note, show_progress, attempt=arguments.attempt)
    yield from run.read(trace, has_inferred=has_inferred, **filters_of(arguments))
    if not trace:
        problems.note_attempts(run, arguments)


def nothing_matches(arguments: argparse.Namespace) -> str:
    """Return the message for filters that no trajectory matches; it names the steps or experiments that there are."""
    message = f"no trajectory in {arguments.folder} matches"
    sql = "SELECT DISTINCT step, experiment_name, run_id FROM trajectories"
    everything = catalog.Run([arguments.folder], on_progress=show_progress)
    found = everything.query(sql, max_rows=1_000_000, seconds=60).rows
    asked = getattr(arguments, "step", None)
    if asked is not None and not any(step in ({asked} if isinstance(asked, int) else asked) for step, _, _ in found):
        return f"{message}{named_steps(step for step, _, _ in found)}"
    experiments = {experiment for _, experiment, _ in found}
    if arguments.experiment is not None and arguments.experiment not in experiments:
        return f"{message}{_named('experiments', experiments)}"
    runs = {run for _, experiment, run in found if arguments.experiment in (None, experiment)}
    if arguments.run is not None and not any((run or "").startswith(arguments.run) for run in runs):
        return f"{message}{_named('runs', runs)}"
    return message


def _named(what: str, names: Iterable[str | None]) -> str:
    """Return the end of a message that names what there is; empty if there is nothing."""
    listed = sorted(str(name) for name in names if name is not None)
    more = f", and {len(listed) - MAX_NAMES} more" if len(listed) > MAX_NAMES else ""
    return f": its {what} are {', '.join(listed[:MAX_NAMES])}{more}" if listed else ""


def named_steps(steps: Iterable[int | None]) -> str:
    """Return the end of a message that names the steps that there are; empty if there are none."""
    known = sorted({step for step in steps if step is not None})
    if not known:
        return ""
    shown = ", ".join(map(str, known)) if len(known) <= MAX_NAMES else f"{known[0]} to {known[-1]}"
    return f"; there {'is step' if len(known) == 1 else 'are steps'} {shown}"


def selected_steps(steps: Sequence[StepSummary], asked: int | range | set[int] | set[None] | None) -> list[StepSummary]:
    """Return the steps that `--step` lets through."""
    if asked is None:
        return list(steps)
    wanted: Container[int | None] = {asked} if isinstance(asked, int) else asked
    return [step for step in steps if step.step in wanted]


def no_step_matches(folder: Path, option: str, known: Sequence[StepSummary]) -> str:
    """Return the message for an option that no step matches; it names the steps that there are."""
    named = f"matches {option}{named_steps(step.step for step in known)}" if known else "has a trajectory"
    return f"no step of {folder} {named}"


def distinct_digits(trace_ids: Sequence[str]) -> int:
    """Return the number of leading digits in which all these ids differ."""
    digits = SHORT_ID
    while len({trace_id[:digits] for trace_id in trace_ids}) < len(set(trace_ids)):
        digits += 1
    return digits


def show_progress(done: int, total: int, what: str = "step") -> None:
    """Show a bar of what has been read, on a terminal."""
    if (bars := count_bars()) is not None:
        bars.update(done, total, what)


def require_reader() -> None:
    """Check that what reads a trace folder and draws it is installed.

    Raises:
        MissingExtraError: It is not.
    """
    missing = [package for package in ("rich", "zstandard") if importlib.util.find_spec(package) is None]
    if missing:
        hint = "" if "zstandard" in missing else " (--json works without)"
        raise MissingExtraError(f"this needs {' and '.join(missing)}: {install_line('cli')}{hint}")


def in_order_of_prompts(trajectories: Iterable[RecordedTrajectory]) -> list[RecordedTrajectory]:
    """Sort trajectories by step, experiment, prompt and rollout."""
    return sorted(trajectories, key=prompt_order)


def redacted_in(values: Iterable[tuple[str, Any]]) -> Counter[str]:
    """Return the number of replacements by redaction in values, by name.

    Args:
        values: The values with their names; only texts count.
    """
    # Its patterns are compiled once it is imported.
    from otel_rollout.finish.known_forms import REDACTED

    found: Counter[str] = Counter()
    for name, value in values:
        if isinstance(value, str) and REDACTED in value:
            found[name] += value.count(REDACTED)
    return found


def redaction_note(by_name: Mapping[str, int]) -> str:
    """Return a line with the number of values that redaction had replaced in each column."""
    if not by_name:
        return "redaction had replaced nothing in it"
    named = ", ".join(f"{name} {count:,}" for name, count in sorted(by_name.items()))
    return f"redaction had replaced {counted(sum(by_name.values()), 'value')} in it: {named}"


def complain_of_redaction(by_name: Mapping[str, int]) -> None:
    """Print `redaction_note` on standard error if there is anything to tell."""
    if by_name:
        complain(redaction_note(by_name))


def print_json(line: bytes) -> None:
    """Print a line of JSON with what a terminal acts on escaped; it parses to the same value.

    Args:
        line: The JSON text, without a line break.
    """
    # JSON has no tab inside a string, and a terminal moves what it shows at one.
    text = line.replace(b"\t", b"").decode()
    if not text.isprintable():
        text = UNESCAPED.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
    sys.stdout.buffer.write(text.encode() + b"\n")
