"""Kills a receiver at moments by chance while spans come: `python -m tests.fuzz.receive_kills --kills 100`.

Senders send spans of many trajectories in any order, some twice, and repeat what was not answered, as exporters do. A
new receiver goes on in the same folder after each kill. In the end every span that was answered with 200 is read, once,
and in the files of trajectories none stands twice. Exit status 1 if that does not hold.
"""

from __future__ import annotations

import argparse
import http.client
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_rollout import read_trajectories
from otel_rollout.folder import ReadProblem
from tests.receive.receiving import ReceiverProcess, make_trace, spans_in_frames

KILLS_A_FOLDER = 10
SENDERS = 4
TORN = {"torn frame"}


class Sender:
    """Sends batches of its trajectories, and each again until it is answered.

    Args:
        number: Tells its trajectories from other senders'.
        rng: Decides what is in a batch.
    """

    def __init__(self, number: int, rng: random.Random) -> None:
        self.answered: set[str] = set()
        self.repeated = 0
        self._rng = rng
        self._next = number * 1_000_000
        self._waiting: list[Span] = []
        self._unanswered: list[Span] = []

    def send_until(self, receiver: ReceiverProcess, is_killed: threading.Event) -> None:
        """Send until the receiver is gone."""
        while not is_killed.is_set():
            self.repeated += bool(self._unanswered)
            batch = self._unanswered or self._make_batch()
            self._unanswered = batch
            try:
                status = receiver.send(batch, encoding=self._rng.choice(["", "zstd"])).status
            except (OSError, http.client.HTTPException):
                return
            if status == 200:
                self.answered.update(span.span_id.hex() for span in batch)
                self._unanswered = []

    def _make_batch(self) -> list[Span]:
        for _ in range(self._rng.randint(1, 10)):
            self._next += 1
            self._waiting += make_trace(self._next, self._rng.randint(1, 8), text="x" * self._rng.randint(0, 3000))
        self._rng.shuffle(self._waiting)
        size = self._rng.randint(1, len(self._waiting))
        batch, self._waiting = self._waiting[:size], self._waiting[size:]
        return batch + self._rng.sample(batch, len(batch) // 10)


def run_folder(folder: Path, kills: int, rng: random.Random) -> tuple[int, int, int, int, Counter[str]]:
    """Kill receivers of one folder; return the spans answered, missing and doubled, requests repeated, and problems."""
    senders = [Sender(number, random.Random(rng.random())) for number in range(SENDERS)]
    for _ in range(kills):
        receiver = ReceiverProcess(folder, "--idle", "1")
        is_killed = threading.Event()
        threads = [threading.Thread(target=sender.send_until, args=(receiver, is_killed)) for sender in senders]
        for thread in threads:
            thread.start()
        time.sleep(rng.uniform(0.0, 1.5))
        receiver.stop(signal.SIGKILL)
        is_killed.set()
        for thread in threads:
            thread.join()
    last = ReceiverProcess(folder, "--idle", "1")
    until = time.monotonic() + 60
    while len(list((folder / "open").glob("*.otlp.zst"))) > 1 and time.monotonic() < until:
        time.sleep(0.1)
    code, said = last.stop()
    assert code == 0, said
    problems: Counter[str] = Counter()

    def note(problem: ReadProblem) -> None:
        problems[problem.what] += 1

    found = Counter(
        f"{span.context.span_id:016x}"
        for each in read_trajectories(folder, on_problem=note)
        for span in each.spans
        if span.context
    )
    answered = set().union(*(sender.answered for sender in senders))
    doubled = sum(count > 1 for count in found.values()) + sum(count > 1 for count in spans_in_frames(folder).values())
    return len(answered), len(answered - found.keys()), doubled, sum(each.repeated for each in senders), problems


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.receive_kills",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=100, help="how many (default: 100)")
    parser.add_argument("--seed", type=int, default=1, help="decides when (default: 1)")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    answered = missing = doubled = repeated = 0
    problems: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="otel-rollout-receive-") as own:
        for first in range(0, arguments.kills, KILLS_A_FOLDER):
            kills = min(KILLS_A_FOLDER, arguments.kills - first)
            here = run_folder(Path(own, str(first)), kills, rng)
            answered, missing, doubled, repeated = (
                total + more for total, more in zip((answered, missing, doubled, repeated), here[:4], strict=True)
            )
            problems += here[4]
    sys.stdout.write(
        f"{arguments.kills} kills: {answered:,} spans answered with 200, {missing} missing, {doubled} doubled; "
        f"{repeated} requests repeated, {dict(problems) or 'nothing'} told\n"
    )
    return 1 if missing or doubled or problems.keys() - TORN or not answered else 0


if __name__ == "__main__":
    sys.exit(main())
