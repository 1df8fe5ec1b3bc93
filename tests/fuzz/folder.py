"""Damages a trace folder in thousands of ways, and looks at it: `python -m tests.fuzz.folder --mutations 10000`.

Whatever is damaged, `ls`, `show`, `stats`, `diagnose`, `top`, `replay` and `otel_rollout.read_trajectories` end without
a traceback, raise nothing but our own errors, print nothing that a terminal acts on, take bounded memory and time, and
show nothing else than before without saying that something can't be read. Exit status 1 where that does not hold. The
same seed does the same.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from otel_rollout import RecordedTrajectory, RolloutTraceError, read_trajectories
from otel_rollout.cli.main import main as command_line
from otel_rollout.folder import AppendFile, append_frame, layout
from otel_rollout.folder.folder_writer import FolderWriter
from otel_rollout.otlp import encode_spans
from tests.fuzz.folder_mutations import BOMB, MUTATIONS, Mutation
from tests.trace_folder.recordings import make_trajectory

BOMB_EVERY = 400
MAX_GROWTH = 800 * 2**20
"""A line may have 256 MiB: twice that is held while its frame is decompressed."""
MAX_SECONDS = 60
"""Of the processor; ten times that on the clock."""
MAX_COMMANDS = 4
ALLOWED = "\n\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"
FIELDS = (
    *("name", "step", "sample_index", "rollout_n", "validate", "experiment_name", "project_name", "run_id", "status"),
    *("reward", "has_root", "start_time", "end_time", "span_count", "size_bytes", "failed", "duration"),
)


class View(NamedTuple):
    """What a folder shows.

    Args:
        trajectories: All of each trajectory, by its trace id.
        complaints: What was said of what can't be read.
    """

    trajectories: dict[str, tuple[Any, ...]]
    complaints: list[str]


class _TooLongError(BaseException):
    pass


def make_folder(folder: Path) -> None:
    """Write a small trace folder that has files of every kind."""
    with mock.patch.object(layout, "new_worker", side_effect=["host-1-0001", "host-2-0002"]):
        # What would be wrong on a terminal is in it from the beginning.
        hostile = "\x1b[2J\x07 \u202e"
        first = FolderWriter(folder, file_max_bytes=2500)
        for sample in range(4):
            first.write(make_trajectory(1, sample, reward=sample / 4, payload=f'"{sample} {hostile}"', note=hostile))
        first.write(make_trajectory(2, 1, validate=True, status="error"))
        first.write(make_trajectory(None, hostile))
        first.close()
        second = FolderWriter(folder)
        second.write(make_trajectory(1, 9)[:1])
        second.write(make_trajectory(1, 9)[1:])
        for sample in (20, 21):
            for span in make_trajectory(3, sample)[:2]:
                second.write([span])
        # Its process is killed before these have ended.
        second._files.forget()
        second._journal.forget()
        spooled = AppendFile(folder / "spooled" / "host-7-0007-000001.otlp.zst")
        for sample in (1, 2):
            append_frame(spooled, encode_spans(make_trajectory(4, sample)))
        spooled.close()
        (folder / ".replay").mkdir()
        (folder / ".replay" / "console-0123456789ab.txt").write_text("# delivered\ntoken\n")


def view(folder: Path) -> View:
    """Return what a folder shows to a program.

    Raises:
        Exception: Something else came out than the errors that are documented.
    """
    complaints: list[str] = []
    trajectories: dict[str, tuple[Any, ...]] = {}
    try:
        for each in read_trajectories(folder, on_problem=lambda problem: complaints.append(str(problem))):
            if each.trace_id in trajectories:
                raise AssertionError(f"{each.trace_id} is given twice")
            trajectories[each.trace_id] = _facts(each, complaints)
    except RolloutTraceError as error:
        complaints.append(str(error))
    return View(trajectories, complaints)


def _facts(trajectory: RecordedTrajectory, complaints: list[str]) -> tuple[Any, ...]:
    facts = [repr(getattr(trajectory, name)) for name in FIELDS]
    facts += [repr(sorted(trajectory.attributes.items(), key=repr)), repr(type(trajectory.stored_bytes))]
    repr(trajectory)
    try:
        spans = [span.to_json() for span in trajectory.spans]
        line = b"%d" % len(trajectory.otlp_json())
    except RolloutTraceError as error:
        complaints.append(str(error))
        return (*facts, None)
    return (*facts, tuple(sorted(spans)), line)


def commands(folder: Path, rng: random.Random, trace_ids: list[str]) -> list[list[str]]:
    """Return command lines that look at a folder: some of what there is."""
    place = str(folder)
    trace = rng.choice(trace_ids)
    lines: list[list[str]] = [
        ["ls", place],
        ["ls", place, "--json"],
        ["ls", place, "--step", "0..99", rng.choice(("--train", "--validate", "--json"))],
        ["stats", place],
        ["stats", place, "--json"],
        ["show", place, "--trace", trace, *rng.choice(([], ["--full"], ["--json"]))],
        ["show", place, "--step", "1"],
        ["replay", place, "--backend", "console", "--again"],
        ["diagnose", place, *rng.choice(([], ["--json"], ["--against", "1"]))],
        ["ls", place, "--perfetto", os.devnull],
        ["top", place, *rng.choice(([], ["--json"]))],
    ]
    return rng.sample(lines, MAX_COMMANDS)


def faults_of(arguments: list[str]) -> list[str]:
    """Run a command line in this process, and return what is wrong with how it ended and what it said."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    faults: list[str] = []
    code: Any = None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = command_line(arguments)
    except SystemExit as error:
        code = error.code
    except Exception:
        faults.append(traceback.format_exc(limit=-4))
    said = b"".join(stream.buffer.getvalue() for stream in (out, err)).decode("utf-8", "replace")  # type: ignore[attr-defined]
    if code not in (0, 1, 2) and not faults:
        faults.append(f"exit code {code}")
    if "Traceback" in said:
        faults.append(said[said.index("Traceback") :][:2000])
    acted_on = {
        each for each in said if not (each.isprintable() or each in ALLOWED or unicodedata.category(each) == "Zs")
    }
    if acted_on:
        faults.append(f"prints {sorted(acted_on)!r}")
    return [f"{arguments[0]} {' '.join(arguments[2:])}: {fault}" for fault in faults]


def difference(before: View, after: View, mutation: Mutation) -> str:
    """Return what changed without a word; nothing if all is as before, or something was said."""
    if mutation.may_change or after.complaints:
        return ""
    gone = before.trajectories.keys() - after.trajectories.keys()
    more = after.trajectories.keys() - before.trajectories.keys()
    other = [
        key
        for key in before.trajectories.keys() & after.trajectories.keys()
        if before.trajectories[key] != after.trajectories[key]
    ]
    if mutation.may_lose:
        # Of a trajectory that stands in several lines a part can be gone, with whatever followed from it.
        other = [key for key in other if not set(after.trajectories[key][-2] or ()) < set(before.trajectories[key][-2])]
        gone = set()
    if not (gone or more or other):
        return ""
    changes = [
        f"{was} is {now}"
        for key in other[:1]
        for was, now in zip(before.trajectories[key], after.trajectories[key], strict=False)
        if was != now
    ]
    return f"{len(gone)} gone, {len(more)} more, {len(other)} changed in silence: {changes}"[:600]


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _TooLongError

    before = {number: signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
    signal.alarm(10 * MAX_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def examine(folder: Path, before: View, mutation: Mutation, rng: random.Random) -> list[str]:
    """Return what is wrong with how a damaged folder is shown."""
    faults: list[str] = []
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with _time_limit():
            try:
                changed = difference(before, view(folder), mutation)
                faults += [changed] if changed else []
            except Exception:
                faults.append(f"read: {traceback.format_exc(limit=-4)}")
            for arguments in commands(folder, rng, sorted(before.trajectories)):
                faults += faults_of(arguments)
    except _TooLongError:
        faults.append(f"more than {MAX_SECONDS} s")
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) * (1 if sys.platform == "darwin" else 1024)
    if growth > MAX_GROWTH:
        faults.append(f"{growth / 2**20:.0f} MiB of memory")
    return faults


def fuzz(
    mutations: int, seed: int, *, with_bombs: bool = True, is_shown: bool = False
) -> tuple[Counter[str], list[str]]:
    """Damage a folder so many times, each time the whole one.

    Args:
        mutations: How many times.
        seed: The first seed; each mutation has its own, one more than the last.
        with_bombs: Whether small files that are large are among them.
        is_shown: Whether to say on standard error how far it is.

    Returns:
        How often each kind of damage was done, and the findings.
    """
    done: Counter[str] = Counter()
    findings: list[str] = []
    with tempfile.TemporaryDirectory(prefix="otel-rollout-fuzz-") as own, mock.patch.dict(os.environ):
        for name in [name for name in os.environ if name.startswith("OTEL_")]:
            del os.environ[name]
        sound, folder = Path(own, "sound"), Path(own, "damaged")
        make_folder(sound)
        before = view(sound)
        assert len(before.trajectories) == 11, len(before.trajectories)
        assert not before.complaints, before.complaints
        for number in range(seed, seed + mutations):
            rng = random.Random(number)
            mutation = BOMB if with_bombs and number % BOMB_EVERY == BOMB_EVERY - 1 else rng.choice(MUTATIONS)
            shutil.copytree(sound, folder)
            if what := mutation.apply(folder, rng):
                done[mutation.name] += 1
                findings += [
                    f"seed {number}, {mutation.name}, {what}: {fault}"
                    for fault in examine(folder, before, mutation, rng)
                ]
            shutil.rmtree(folder)
            if is_shown and number % 100 == 0:
                sys.stderr.write(f"\r{number - seed} done, {len(findings)} findings")
                sys.stderr.flush()
    return done, findings


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.folder", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mutations", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default: 1)")
    arguments = parser.parse_args()
    started = time.monotonic()
    done, findings = fuzz(arguments.mutations, arguments.seed, is_shown=sys.stderr.isatty())
    kinds = ", ".join(f"{count} {name}" for name, count in sorted(done.items()))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    lines = [finding.encode("unicode_escape").decode().replace("\\n", "\n") for finding in findings]
    lines.append(f"{sum(done.values()):,} mutations ({kinds}) in {time.monotonic() - started:.0f} s")
    lines.append(f"{len(findings)} findings, at most {memory / 2**20:.0f} MiB of memory")
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
