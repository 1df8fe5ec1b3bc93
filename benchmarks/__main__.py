"""`python -m benchmarks`: measure what tracing costs, and print one table of ratios."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from benchmarks.run import FULL, SMOKE, run
from benchmarks.table import as_data, as_text
from benchmarks.tracers import BASELINE, PEERS, TITLES


def main() -> int:
    """Run what the command line asks for; 1 where a tracer that must be there could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print all figures as JSON in place of the table")
    parser.add_argument("--smoke", action="store_true", help="a short run that shows that everything works")
    parser.add_argument("--no-peers", action="store_true", help="leave the other tracers out")
    parser.add_argument("--rounds", type=int, help=f"how many rounds (default: {FULL.rounds})")
    arguments = parser.parse_args()

    effort = SMOKE if arguments.smoke else FULL
    if arguments.rounds:
        effort = effort._replace(rounds=arguments.rounds)
    pythons = dict.fromkeys((BASELINE, "orjson", "ours"), sys.executable)
    missing = ""
    if not arguments.no_peers:
        python, missing = _peers_python()
        if python:
            pythons.update(dict.fromkeys(PEERS, python))
    samples = run(pythons, effort)
    if missing:
        samples.skipped.update(dict.fromkeys(PEERS, missing))
    print(json.dumps(as_data(samples), indent=2) if arguments.json else as_text(samples))
    failed = [name for name in samples.skipped if name.partition(" ")[0] not in PEERS]
    for name in failed:
        print(f"{TITLES.get(name, name)} was not measured: {samples.skipped[name]}", file=sys.stderr)
    return 1 if failed else 0


def _peers_python() -> tuple[str, str]:
    """Return the interpreter that the other tracers are installed for, or why there is none."""
    try:
        from scripts.environments import ensure

        return str(ensure("peers") / "bin" / "python"), ""
    except (ImportError, OSError, subprocess.CalledProcessError) as error:
        return "", f"their environment could not be made ({error})"


if __name__ == "__main__":
    sys.exit(main())
