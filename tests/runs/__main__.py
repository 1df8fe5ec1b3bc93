"""Writes runs of every kind, and reports what `otel-rollout diagnose` says of them.

python -m tests.runs                       # all kinds, five seeds each
python -m tests.runs --seeds 1 reward_collapses plain
python -m tests.runs --held-out            # the kinds that were held out while `diagnose` was written
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.runs.kind import HEALTHY, UNHEALTHY
from tests.runs.score import Answer, answer_of

OPEN = ("tests.runs.unhealthy", "tests.runs.healthy")
HELD_OUT = ("tests.runs.unhealthy_held_out", "tests.runs.healthy_held_out")


def main() -> int:
    """Print a row for each kind and the sums."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.runs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", help="only these kinds")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each kind (default: %(default)s)")
    parser.add_argument("--held-out", action="store_true", help="the kinds that were held out")
    parser.add_argument("--processes", type=int, default=2, help="processes (default: %(default)s)")
    options = parser.parse_args()
    modules = HELD_OUT if options.held_out else OPEN
    for module in modules:
        importlib.import_module(module)
    kinds = options.kinds or [*UNHEALTHY, *HEALTHY]
    asked = [(modules, kind, seed) for kind in kinds for seed in range(1, options.seeds + 1)]
    answers: list[Answer] = []
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        for answer in pool.map(answer_of, asked):
            answers.append(answer)
            if answer.seed == options.seeds:
                rows = answers[-options.seeds :]
                words = Counter(row.words for row in rows)
                print(f"{sum(row.is_hit for row in rows)}/{len(rows)}  {answer.kind}", end="  ")
                print("; ".join(f"{count} {text}" for text, count in words.most_common()), flush=True)
    report(answers)
    return 0


def report(answers: Iterable[Answer]) -> None:
    """Print recall, and the share of healthy runs with findings."""
    unhealthy = [answer for answer in answers if answer.kind in UNHEALTHY]
    healthy = [answer for answer in answers if answer.kind in HEALTHY]
    if unhealthy:
        hits = sum(answer.is_hit for answer in unhealthy)
        print(f"unhealthy: {hits} of {len(unhealthy)} named, {hits / len(unhealthy):.2f}")
    if healthy:
        errors = {answer.kind for answer in healthy if "error" in answer.severities}
        warnings = {answer.kind for answer in healthy if "warning" in answer.severities}
        kinds = len({answer.kind for answer in healthy})
        print(f"healthy kinds: {kinds}; with an error {len(errors)}, with a warning {len(warnings)}")


if __name__ == "__main__":
    sys.exit(main())
