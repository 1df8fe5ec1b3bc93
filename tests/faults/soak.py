"""Faults at random for minutes, and an exact account at the end: `python -m tests.faults.soak --minutes 10`.

Processes trace rollouts of several asyncio tasks into two OTLP receivers whose faults change all the time, and into a
trace folder. Some stay to the end, when the weather clears and everything must be settled: what each sent is what each
backend stored and what it counted as lost. Others leave in the middle of it: of these, nothing is missing that is not
counted. Exit status 1 where that does not hold, or a queue, the memory or the disk went over its bound.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.faults.faulty_receiver import Fault, FaultyReceiver
from tests.faults.trainer import spooled

HERE = Path(__file__).resolve().parent
MIB = 2**20
QUEUE = 4 * MIB
MAX_GROWTH = 96 * MIB
"""Of a worker: its queues (three), what is in flight of each, and the interpreter's own."""
MAX_DISK = 2048 * MIB
SECONDS_FOR_THE_REST = 120.0

WEATHER: Mapping[str, Fault | None] = {
    "fair": None,
    "down": None,
    "slow": Fault(delay=0.05),
    "very slow": Fault(delay=1.0),
    "hanging": Fault(hangs=True),
    "503": Fault(status=503),
    "503 after commit": Fault(status=503, after_commit=True),
    "429": Fault(status=429, headers=(("retry-after", "1"),)),
    "reset in mid-body": Fault(reset="body"),
    "reset in mid-answer": Fault(reset="answer"),
}


class Backend:
    """One receiver and its weather.

    Args:
        name: What stats() calls the exporter that sends there.
        rng: Decides the weather.
    """

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name = name
        self.receiver = FaultyReceiver()
        self.receiver.refuses = lambda spans, size: 400 if any(span.name == "bad" for span in spans) else 0
        self.weather = "fair"
        self.seen: Counter[str] = Counter()
        self._rng = rng
        self._until = 0.0

    def tick(self, now: float) -> None:
        """Change the weather when it is time."""
        if now >= self._until:
            faults = [name for name in WEATHER if name != "fair"]
            self.set("fair" if self._rng.random() < 0.4 else self._rng.choice(faults))
            self._until = now + self._rng.uniform(0.5, 6.0)

    def set(self, weather: str) -> None:
        """Change the weather."""
        if self.weather == "down" != weather:
            self.receiver.up()
        elif weather == "down" != self.weather:
            self.receiver.down()
        self.receiver.release()
        self.receiver.steady = WEATHER[weather]
        self.weather = weather
        self.seen[weather] += 1


class Account:
    """What one process wrote down.

    Args:
        folder: Where.
        stays: Whether it ended in fair weather.
        spool: Where it left what it could not deliver.
    """

    def __init__(self, folder: Path, spool: Path, *, stays: bool) -> None:
        self.name, self.stays, self._spool = folder.name, stays, spool
        ids = (folder / "sent").read_bytes()
        self.sent = {ids[place : place + 8].hex() for place in range(0, len(ids), 8)}
        self.report = json.loads((folder / "report.json").read_text())

    def spooled(self, exporter: str) -> list[str]:
        """Return the ids of the spans that it left on disk for one exporter."""
        # A forked child shares its parent's folder.
        return [one for one in spooled(self._spool / exporter) if one in self.sent]


class Worker:
    """One process that traces, and a child of it perhaps.

    Args:
        folder: Where it writes what it sent and counted.
        seconds: How long it stays; None for one that stays to the end.
        given: What else it is told.
        variables: Its environment.
    """

    def __init__(
        self, folder: Path, seconds: float | None, given: Mapping[str, Any], variables: Mapping[str, str]
    ) -> None:
        folder.mkdir()
        self.folder, self._stays = folder, seconds is None
        told = json.dumps({"folder": str(folder), "seconds": seconds, "queue": QUEUE, **given})
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "programs" / "soak_worker.py"), told],
                stdin=subprocess.PIPE,
                stderr=log,
                env=dict(variables),
            )

    def stop(self) -> None:
        """Tell it that it may come to its end."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()

    def accounts(self) -> list[Account]:
        """Return its account, and its child's."""
        folders = [self.folder, self.folder.with_name(f"{self.folder.name}-child")]
        return [Account(each, self.folder / "spool", stays=self._stays) for each in folders if each.exists()]


def check_counts(
    sent: set[str], stored: set[str], spooled: Sequence[str], counts: Mapping[str, Any], *, stays: bool
) -> list[str]:
    """Return what is wrong with the account of one process and one backend; nothing where it is right.

    Args:
        sent: The ids of the spans that the process ended.
        stored: The ids of those that the backend has.
        spooled: The ids of those that wait on disk.
        counts: What the process counted for that backend.
        stays: Whether it ended in fair weather: then what is stored is what was delivered, exactly. Else a batch may
            be stored whose answer did not come in time, or be on disk a moment after the end: it is counted as lost,
            or as on disk, all the same. A file that there was no time to clear has delivered spans, too, or some
            twice: a replay sends them again under their ids.
    """
    wrong = []
    lost = sum(counts["lost"].values())
    if counts["recorded"] != len(sent):
        wrong.append(f"ended {len(sent)}, recorded {counts['recorded']}")
    if counts["delivered"] + counts["spooled"] + lost != counts["recorded"] or counts["queued"]:
        wrong.append(f"what is recorded is not what is delivered, spooled and lost: {counts}")
    missing = len(sent - stored - set(spooled))
    if (missing != lost or spooled) if stays else (missing > lost):
        wrong.append(f"{missing} are missing, {lost} are counted as lost, {len(spooled)} are on disk")
    allowed = {"queue_full", "refused"} | (set() if stays else {"shutdown", "unknown"})
    if not set(counts["lost"]) <= allowed:
        wrong.append(f"lost for other reasons than {sorted(allowed)}: {counts['lost']}")
    return wrong


def check(accounts: Sequence[Account], stored: Mapping[str, set[str]]) -> list[str]:
    """Return what is wrong with all accounts; nothing where they are right.

    Args:
        accounts: Those of all processes.
        stored: The ids that each backend has, by the name of its exporter.
    """
    wrong = []
    everything: set[str] = set()
    for account in accounts:
        everything |= account.sent
        if account.report["stats"]["internal_errors"]:
            wrong.append(f"{account.name}: internal errors: {account.report['stats']['internal_errors']}")
        if account.report["growth"] > MAX_GROWTH:
            wrong.append(f"{account.name}: grew by {account.report['growth'] / MIB:.0f} MiB")
        for name, most in account.report["most_queued"].items():
            if most > QUEUE:
                wrong.append(f"{account.name}: {name}'s queue held {most} bytes")
        for name, ids in stored.items():
            counts = account.report["stats"]["exporters"][name]
            left = account.spooled(name)
            found = check_counts(account.sent, ids & account.sent, left, counts, stays=account.stays)
            wrong += [f"{account.name}, {name}: {one}" for one in found]
    for name, ids in stored.items():
        if not ids <= everything:
            wrong.append(f"{name} has {len(ids - everything)} spans that nobody sent")
    return wrong


def stored_in_folder(folder: Path) -> set[str]:
    """Return the ids of the spans in a trace folder, read through the library.

    Raises:
        AssertionError: A span is there twice.
    """
    import otel_rollout

    ids: Counter[str] = Counter()
    for trajectory in otel_rollout.read_trajectories(folder):
        ids.update(f"{span.context.span_id:016x}" for span in trajectory.spans)
    twice = [one for one, times in ids.items() if times > 1]
    assert not twice, f"{len(twice)} spans are in the folder twice"
    return set(ids)


class Soak:
    """The whole of it.

    Args:
        folder: Where everything is written.
        seed: Decides the weather and how long workers stay.
        workers: How many processes trace at a time; one of them leaves and is replaced again and again.
        pause: Seconds between the ends of rollouts of one task; 8 tasks run in each process.
        has_file: Whether the workers write a trace folder too.
        has_spool: Whether every other worker has a spool.
    """

    def __init__(self, folder: Path, *, seed: int, workers: int, pause: float, has_file: bool, has_spool: bool) -> None:
        self._rng = random.Random(seed)
        self._folder = folder
        self._has_spool = has_spool
        names = ["OtlpHttpSpanExporter", "OtlpHttpSpanExporter-2"]
        self._backends = [Backend(name, self._rng) for name in names]
        self._traces = folder / "traces" if has_file else None
        self._given = {
            "endpoints": [backend.receiver.url for backend in self._backends],
            "names": ["file"] if has_file else [],
            "pause": pause,
        }
        self._workers: list[Worker] = []
        for _ in range(workers - 1):
            self._start(None)

    def _start(self, seconds: float | None) -> Worker:
        number = len(self._workers)
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
        variables = {**inherited, "OTEL_ROLLOUT_DIR": str(self._traces or "")}
        folder = self._folder / f"worker-{number}"
        if number % 2 and self._has_spool:
            variables["OTEL_ROLLOUT_SPOOL"] = str(folder / "spool")
        given = {**self._given, "number": number, "forks": number % 4 >= 2}
        worker = Worker(folder, seconds, given, variables)
        self._workers.append(worker)
        return worker

    def run(self, seconds: float) -> list[str]:
        """Let it run for so long, then clear the weather; return what is wrong at the end."""
        try:
            wrong = self._storm(seconds) + self._calm()
            if wrong:
                return wrong
            stored = {backend.name: set(backend.receiver.stored) for backend in self._backends}
            if self._traces is not None:
                stored["file"] = stored_in_folder(self._traces)
            accounts = [account for worker in self._workers for account in worker.accounts()]
            wrong = check(accounts, stored)
            for backend in self._backends:
                if backend.receiver.names["bad"]:
                    wrong.append(f"{backend.name}: {backend.receiver.names['bad']} bad spans were stored")
            self._tell(accounts, stored)
            return wrong
        finally:
            for worker in self._workers:
                worker.process.kill()
                worker.process.wait()
                worker.stop()
            for backend in self._backends:
                backend.receiver.close()

    def _storm(self, seconds: float) -> list[str]:
        started, next_line, leaver = time.monotonic(), 0.0, None
        while (passed := time.monotonic() - started) < seconds:
            for backend in self._backends:
                backend.tick(passed)
            if leaver is None or leaver.process.poll() is not None:
                leaver = self._start(self._rng.uniform(2.0, 15.0))
            if passed >= next_line:
                next_line = passed + 5.0
                if (used := self._disk()) > MAX_DISK:
                    return [f"the disk holds {used / MIB:.0f} MiB"]
                self._progress(passed, used)
            for worker in self._workers:
                if worker.process.poll():
                    return [f"{worker.folder.name} ended with {worker.process.poll()}: {worker.folder / 'log'}"]
            time.sleep(0.05)
        return []

    def _calm(self) -> list[str]:
        for backend in self._backends:
            backend.set("fair")
        for worker in self._workers:
            worker.stop()
        deadline = time.monotonic() + SECONDS_FOR_THE_REST
        while any(worker.process.poll() is None for worker in self._workers) and time.monotonic() < deadline:
            time.sleep(0.05)
        statuses = {worker.folder.name: worker.process.poll() for worker in self._workers}
        return [
            f"{name} {f'ended with {status}' if status else 'hangs'}"
            for name, status in statuses.items()
            if status != 0
        ]

    def _disk(self) -> int:
        return sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())

    def _progress(self, passed: float, used: int) -> None:
        states = "  ".join(
            f"{backend.name} {backend.weather}, {len(backend.receiver.stored):,} stored" for backend in self._backends
        )
        say(f"{passed:5.0f} s  {len(self._workers)} processes so far  {states}  disk {used / MIB:.0f} MiB")

    def _tell(self, accounts: Sequence[Account], stored: Mapping[str, set[str]]) -> None:
        sent = sum(len(account.sent) for account in accounts)
        growth = max(account.report["growth"] for account in accounts)
        say(f"{len(accounts)} processes sent {sent:,} spans; the largest grew by {growth / MIB:.0f} MiB")
        for name, ids in stored.items():
            every = [account.report["stats"]["exporters"][name] for account in accounts]
            lost = sum((Counter(counts["lost"]) for counts in every), Counter())
            left = sum(len(account.spooled(name)) for account in accounts)
            unanswered = len(ids) + left + sum(lost.values()) - sent
            say(
                f"{name}: {len(ids):,} stored + {sum(lost.values()):,} counted as lost {dict(lost)} + {left:,} on disk "
                f"= {sent:,} sent{f' + {unanswered} of leavers that were stored unanswered' if unanswered else ''}; "
                f"{sum(counts['payloads_dropped'] for counts in every):,} without payload"
            )
        for backend in self._backends:
            again = sum(backend.receiver.stored.values()) - len(backend.receiver.stored)
            say(f"{backend.name}: {again:,} spans were stored again under the same id; {dict(backend.seen)}")


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run it, and return the exit status."""
    parser = argparse.ArgumentParser(description="Faults at random, and an exact account at the end.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="default: one that is printed")
    parser.add_argument("--workers", type=int, default=3, help="processes at a time (default 3)")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between rollouts of a task (default 0.1)")
    parser.add_argument("--no-file", action="store_true", help="without the trace folder")
    parser.add_argument("--no-spool", action="store_true", help="without a spool, which every other process has")
    parser.add_argument("--keep", action="store_true", help="keep what was written")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10**6)
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    say(f"seed {seed}, {given.minutes:g} minutes, in {folder}")
    soak = Soak(
        folder,
        seed=seed,
        workers=given.workers,
        pause=given.pause,
        has_file=not given.no_file,
        has_spool=not given.no_spool,
    )
    wrong = soak.run(given.minutes * 60)
    for line in wrong:
        say(f"WRONG: {line}")
    if not given.keep and not wrong:
        shutil.rmtree(folder)
    say("wrong" if wrong else "right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
