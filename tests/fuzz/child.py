"""One process of the fuzz: `python -m tests.fuzz.child values --seconds 10 --seed 1`.

    values    any value, to ops of every form
    races     values that other threads change meanwhile
    signals   values while a signal handler raises at random moments
    abandoned calls while the garbage collector closes generators and coroutines that nobody has waited for

Exits with 0 if nothing was found; else with 1, and what was found stands on stdout, one JSON object in a line.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import logging
import os
import random
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from opentelemetry import context as context_api

import otel_rollout
from tests.fuzz.forms import ERRORS, FORMS, SUSPENDED, Turn, abandon, checked, places
from tests.fuzz.hostile import BEHAVIOURS, behave
from tests.fuzz.races import Live
from tests.fuzz.sink import Sink
from tests.fuzz.values import values
from tests.fuzz.watch import WATCH

__all__ = ["SCENARIOS"]

MAX_MEMORY = 6 * 2**30
"""Of addresses: a value that is endless as JSON must not take the machine's memory."""
NOTE_BYTES = 400
MAX_DEPTH = 3
MAX_DESCRIBED = 3
"""Of a value that a crash is reported with: levels, and items of each."""
EXAMPLES = 100
"""Before the clock is looked at."""
_VALUES = values()
UNLEFT = tuple(FORMS) if sys.version_info < (3, 11) else ("trajectory",)
"""What may leave something current: at the first instruction of `__exit__`, nobody can undo `__enter__`.

Before Python 3.11 signal handlers run between any two instructions, also between a call and the `try` behind it.
"""
SHORTEST, LONGEST = 0.00002, 0.003
"""Seconds until a signal comes."""


class AlarmError(Exception):
    """What a grader's handler raises."""


def generated(deadline: float, base: int, step: Callable[[str, Turn], None]) -> None:
    """Call `step` with values of hypothesis until the time is up, each with ops of every form.

    Args:
        deadline: On the monotonic clock.
        base: The seed.
        step: Calls an op.
    """
    used: set[str] = set()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        _VALUES,
        _VALUES,
        st.sampled_from(sorted(BEHAVIOURS)),
        st.integers(0, 2**32),
    )
    def run(value: Any, result: Any, behaviour: str, number: int) -> None:
        behave(behaviour)
        rng = random.Random(number)
        text = f"of {described(value)} to {described(result)}, hostile: {behaviour}"
        for form in FORMS:
            # A busy machine takes longer than the deadline for the first value: it is used all the same.
            if not used or time.monotonic() < deadline:
                used.add(form)
                turn = turn_of(value, result, rng)
                note(f"{form} {text}, error: {type(turn.error).__name__}")
                step(form, turn)

    number = 0
    while not used or time.monotonic() < deadline:
        number += 1
        seed(base * 100_003 + number)(run)()


def note(text: str) -> None:
    """Keep what is done next where the parent finds it after a crash."""
    if _note:
        os.pwrite(_note[0], text.encode().ljust(NOTE_BYTES)[:NOTE_BYTES], 0)


_note: list[int] = []


def turn_of(value: Any, result: Any, rng: random.Random) -> Turn:
    """Return a turn; one in three raises."""
    return Turn(value, result, rng.choice(ERRORS)(value) if rng.randrange(3) == 0 else None)


def run_values(deadline: float, base: int) -> None:
    """Any value, to ops of every form."""
    generated(deadline, base, checked)


def run_races(deadline: float, base: int) -> None:
    """Values that other threads change meanwhile."""
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)
    rng = random.Random(base)
    with Live(base) as live:
        while time.monotonic() < deadline:
            form, turn = rng.choice(sorted(FORMS)), turn_of(live.value(), live.value(), rng)
            note(f"{form} of {type(turn.value).__name__} to {type(turn.result).__name__}")
            checked(form, turn)


def run_signals(deadline: float, base: int) -> None:
    """Values while a signal handler raises at random moments."""
    rng = random.Random(base)
    state = {"open": False, "raised": 0, "unraisable": 0}
    places_of_alarms: list[str] = []

    def on_alarm(number: int, frame: Any) -> None:
        if state["open"]:
            state["open"] = False
            state["raised"] += 1
            stack = traceback.extract_stack(frame, 4)
            places_of_alarms[:] = [f"{Path(entry.filename).name}:{entry.lineno} {entry.name}" for entry in stack]
            raise AlarmError

    def on_unraisable(event: Any) -> None:
        # Raised where Python has nobody to hand it to: in a destructor, or in a callback of the collector.
        state["unraisable"] += event.exc_type is AlarmError

    signal.signal(signal.SIGALRM, on_alarm)
    sys.unraisablehook = on_unraisable
    gc.set_threshold(50)

    def step(form: str, turn: Turn) -> None:
        context = context_api.get_current()
        raised, unraisable, caught = state["raised"], state["unraisable"], None
        try:
            state["open"] = True
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(SHORTEST, LONGEST))
            caught = checked(form, turn, allowed=AlarmError)
        except AlarmError as alarm:
            # After the op, or within the harness.
            caught = alarm
        state["open"] = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        if state["raised"] > raised and caught is None and state["unraisable"] == unraisable:
            WATCH.found(f"{form}: what a signal handler raised was swallowed", " > ".join(places_of_alarms))
        if context_api.get_current() is not context:
            context_api.attach(context)
            if form not in UNLEFT:
                WATCH.found(f"{form}: what was current before is not current after it", " > ".join(places_of_alarms))

    generated(deadline, base, step)


def run_abandoned(deadline: float, base: int) -> None:
    """Calls while the garbage collector closes ops that nobody has waited for."""
    rng = random.Random(base)
    gc.set_threshold(50)
    while time.monotonic() < deadline:
        turn = turn_of([rng.random()], {"key": ["x" * 50]}, rng)
        if turn.error is None:
            abandon(rng.choice(SUSPENDED), turn)
        checked(rng.choice(sorted(FORMS)), turn_of([rng.random()], {"key": ["x" * 50]}, rng))


SCENARIOS = {"values": run_values, "races": run_races, "signals": run_signals, "abandoned": run_abandoned}


def described(value: Any, depth: int = 0) -> str:
    """Return the types that a value is made of."""
    name = type(value).__name__
    if depth < MAX_DEPTH and type(value) in (list, tuple):
        return f"{name}({', '.join(described(item, depth + 1) for item in value[:MAX_DESCRIBED])})"
    if depth < MAX_DEPTH and type(value) is dict:
        pairs = list(value.items())[:MAX_DESCRIBED]
        return f"{name}({', '.join(f'{type(key).__name__}: {described(item, depth + 1)}' for key, item in pairs)})"
    return name


def write(record: dict[str, Any]) -> None:
    """Write one line for the parent."""
    sys.stdout.write(f"{json.dumps(record)}\n")
    sys.stdout.flush()


class InternalErrors(logging.Handler):
    """Takes faults of the product that it caught itself, and nothing else of the log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Note a fault."""
        if record.levelno >= logging.ERROR and record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            WATCH.found(f"{record.name}: {record.getMessage()}: {type(error).__name__}", places(error))


def account(sink: Sink) -> None:
    """Note what delivery and the product's own counts have to say at the end."""
    is_flushed = otel_rollout.flush(60)
    stats = otel_rollout.stats()
    counts = stats.exporters["Sink"]
    # Spans whose put a signal handler interrupted are counted as lost.
    if not is_flushed and (counts.queued or counts.lost.keys() - {"interrupted"}):
        WATCH.found("flush did not succeed", str(stats))
    if counts.delivered != sink.received or counts.recorded != counts.delivered + sum(counts.lost.values()):
        WATCH.found("the account of spans is wrong", str(counts))
    otel_rollout.shutdown(10)


def main() -> int:
    """Run one scenario and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--note", help="a file that says what was done last")
    chosen = parser.parse_args()
    if chosen.note:
        _note.append(os.open(chosen.note, os.O_CREAT | os.O_WRONLY))
    faulthandler.enable()
    warnings.simplefilter("ignore")
    logging.basicConfig(handlers=[InternalErrors()], force=True)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sink = Sink()
    otel_rollout.init("fuzz", "fuzz", backend=sink)
    SCENARIOS[chosen.scenario](time.monotonic() + chosen.seconds, chosen.seed)
    account(sink)
    for kind, count in sorted(WATCH.findings.items()):
        write({"kind": kind, "count": count, "detail": WATCH.details[kind]})
    write({"spans": sink.received})
    return 1 if WATCH.findings else 0


if __name__ == "__main__":
    sys.exit(main())
