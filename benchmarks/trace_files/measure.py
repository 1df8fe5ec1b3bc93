"""All stores written and read in turns, in one process, on the same spans."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.trace_files.load import Load, batches
from benchmarks.trace_files.stores.store import Store

Progress = Callable[[str], None]

QUICK_SECONDS = 0.05
"""A question is asked again, up to five times in a round, until this time has passed."""

SLOW_SECONDS, SLOW_ROUNDS = 0.5, 2
"""What takes longer than this is not asked again after so many rounds."""


class Question(NamedTuple):
    """One kind of read.

    Args:
        name: What it is called in the figures.
        ask: Asks a store about a step, a prompt and a rollout.
        outline: What must be the same in every store's answer.
    """

    name: str
    ask: Callable[[Store, int, int, int], Any]
    outline: Callable[[Store, Any], Any]


def _attributes(store: Store, spans: Sequence[Any]) -> list[dict[str, Any]]:
    return [store.attributes_of(span) for span in spans]


def _outline_of_spans(store: Store, spans: Sequence[Any]) -> list[Any]:
    return _outline_of_attributes(store, _attributes(store, spans))


def _outline_of_attributes(store: Store, spans: Sequence[dict[str, Any]]) -> list[Any]:
    return sorted(sorted((key, repr(value)) for key, value in attributes.items()) for attributes in spans)


QUESTIONS = (
    Question("roots", lambda store, step, sample, n: store.roots(step), lambda store, answer: sorted(answer)),
    Question("trajectory", lambda store, step, sample, n: store.trajectory(step, sample, n), _outline_of_spans),
    Question(
        "trajectory_attributes",
        lambda store, step, sample, n: _attributes(store, store.trajectory(step, sample, n)),
        _outline_of_attributes,
    ),
    Question("spans", lambda store, step, sample, n: _attributes(store, store.spans(step)), _outline_of_attributes),
    Question("groups", lambda store, step, sample, n: store.groups(), lambda store, answer: sorted(answer)),
)


class Written(NamedTuple):
    """What writing cost.

    Args:
        spans: How many spans.
        payload_bytes: What their inputs and outputs take.
        cpu: Seconds of CPU time of the process, kernel included, by store.
        wall: Seconds, by store.
    """

    spans: int
    payload_bytes: int
    cpu: dict[str, float]
    wall: dict[str, float]


def measure(load: Load, makers: Sequence[type[Store]], folder: Path, rounds: int, progress: Progress) -> dict[str, Any]:
    """Write the load to every store, then ask every store; return the figures.

    Args:
        load: What is written.
        makers: The stores.
        folder: An empty folder with room for all of them.
        rounds: How often each question is asked at least.
        progress: Told what is being done.
    """
    _write(load._replace(steps=1, prompts=1), _make(makers, folder / "warm-up"), lambda _: None)
    stores = _make(makers, folder / "measured")
    written = _write(load, stores, progress)
    reads = _read(load, stores, rounds, progress)
    return {
        "load": {**load._asdict(), "spans": written.spans, "payload_bytes": written.payload_bytes},
        "stores": {
            store.title: {
                "cpu_us_per_span": written.cpu[store.title] / written.spans * 1e6,
                "cpu_mb_per_s": written.payload_bytes / written.cpu[store.title] / 1e6,
                "wall_mb_per_s": written.payload_bytes / written.wall[store.title] / 1e6,
                "size_to_payload": store.size() / written.payload_bytes,
                **{f"{name}_ms": statistics.median(times) * 1e3 for name, times in reads[store.title].items()},
            }
            for store in stores
        },
    }


def _make(makers: Sequence[type[Store]], folder: Path) -> list[Store]:
    folders = {maker: folder / maker.__name__ for maker in makers}
    for own in folders.values():
        own.mkdir(parents=True)
    return [maker(own) for maker, own in folders.items()]


def _write(load: Load, stores: Sequence[Store], progress: Progress) -> Written:
    cpu = dict.fromkeys((store.title for store in stores), 0.0)
    wall = dict(cpu)
    spans = payload_bytes = 0

    def timed(store: Store, work: Callable[[], None]) -> None:
        cpu_before, wall_before = time.process_time(), time.perf_counter()
        work()
        cpu[store.title] += time.process_time() - cpu_before
        wall[store.title] += time.perf_counter() - wall_before

    for number, batch in enumerate(batches(load)):
        progress(f"{load.title}: writing step {batch.step + 1} of {load.steps}")
        # Whoever comes first finds the spans cold in the processor's cache.
        for store in _rotated(stores, number):
            # As delivery does where several exporters get a span: what one has it make is not there for the next one.
            spans_of_store = batch.readable()
            timed(store, lambda store=store: store.write(spans_of_store))  # type: ignore[misc]  # noqa: B023
        spans += len(batch.spans)
        payload_bytes += batch.payload_bytes
    for store in stores:
        timed(store, store.finish)
    return Written(spans, payload_bytes, cpu, wall)


def _read(load: Load, stores: Sequence[Store], rounds: int, progress: Progress) -> dict[str, dict[str, list[float]]]:
    chance = random.Random(2)
    times: dict[str, dict[str, list[float]]] = {
        store.title: {question.name: [] for question in QUESTIONS} for store in stores
    }
    for number in range(rounds):
        step = chance.randrange(load.steps)
        asked = (step, step * load.prompts + chance.randrange(load.prompts), chance.randrange(load.rollouts))
        outlines: dict[str, Any] = {}
        for store in _rotated(stores, number):
            progress(f"{load.title}: reading, round {number + 1} of {rounds}, {store.title}")
            for question in QUESTIONS:
                before = times[store.title][question.name]
                if len(before) >= SLOW_ROUNDS and min(before) > SLOW_SECONDS:
                    continue
                answer, seconds = _timed_answers(store, question, asked)
                before.append(seconds)
                if not number:
                    outline = question.outline(store, answer)
                    if not outline or outlines.setdefault(question.name, outline) != outline:
                        raise RuntimeError(f"{store.title} answers {question.name!r} otherwise than the others")
    return times


def _timed_answers(store: Store, question: Question, asked: tuple[int, int, int]) -> tuple[Any, float]:
    """Return an answer, and the fewest seconds that it took."""
    samples: list[float] = []
    while len(samples) < 5 and sum(samples) < QUICK_SECONDS:
        start = time.perf_counter()
        answer = question.ask(store, *asked)
        samples.append(time.perf_counter() - start)
    return answer, min(samples)


def _rotated(stores: Sequence[Store], number: int) -> list[Store]:
    first = number % len(stores)
    return [*stores[first:], *stores[:first]]
