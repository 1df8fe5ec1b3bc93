"""Print the lines of each room of the code and of its tests, with their aims, and the slow tests that a diff asks for.

python scripts/sizes.py                      # the table, and the rooms that differ from origin/main, else HEAD
python scripts/sizes.py --base HEAD~20       # the rooms that differ from this commit
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent


class Room(NamedTuple):
    """A part of the code, with its tests.

    Args:
        name: Its name in the table.
        aim: The lines of source that it shall have.
        source: Patterns of its files; a `*` crosses folders.
        tests: Patterns of the files that test it.
    """

    name: str
    aim: int
    source: tuple[str, ...]
    tests: tuple[str, ...]


# In the order of the data. A file of tests counts for the first room that names it.
ROOMS: Final = (
    Room(
        "record",
        4500,
        ("otel_rollout/record/*", "otel_rollout/guard/*"),
        (
            "tests/test_annotate.py",
            "tests/test_ca*.py",
            "tests/test_context.py",
            "tests/test_decorator*.py",
            "tests/test_followed*.py",
            "tests/test_late*.py",
            "tests/test_llm.py",
            "tests/test_nesting.py",
            "tests/test_op*.py",
            "tests/test_process*.py",
            "tests/test_sampling.py",
            "tests/test_sig*.py",
            "tests/test_snapshot*.py",
            "tests/test_span*.py",
            "tests/test_torch.py",
            "tests/test_traj*.py",
        ),
    ),
    Room(
        "finish", 1900, ("otel_rollout/finish/*",), ("tests/test_payload*.py", "tests/*redaction*", "tests/test_token*")
    ),
    Room("messages", 1300, ("otel_rollout/messages/*",), ("tests/*messages*", "tests/forms/*", "tests/test_openai*")),
    Room(
        "deliver",
        2700,
        ("otel_rollout/deliver/*", "otel_rollout/export/*", "otel_rollout/replay/*"),
        (
            "tests/delivery/*",
            "tests/faults/*",
            "tests/replay/*",
            "tests/test_http*",
            "tests/test_conn*",
            "tests/test_exit*",
            "tests/test_shutdown.py",
        ),
    ),
    Room("otlp", 1000, ("otel_rollout/otlp/*",), ("tests/test_otlp*",)),
    Room(
        "facts",
        2800,
        ("otel_rollout/facts/*",),
        ("tests/trees/*", "tests/test_utterances.py", "tests/test_reward_parts.py"),
    ),
    Room(
        "folder", 2700, ("otel_rollout/folder/*",), ("tests/trace_folder/*", "tests/exporters/file/*", "tests/fuzz/*")
    ),
    Room(
        "catalog",
        3900,
        ("otel_rollout/catalog/*", "otel_rollout/dataframes/*"),
        ("tests/catalog/*", "tests/dataframes/*", "tests/run/*"),
    ),
    Room("receive", 1200, ("otel_rollout/receive/*",), ("tests/receive/*",)),
    Room(
        "look",
        4700,
        ("otel_rollout/look/*",),
        ("tests/view/*", "tests/findings/*", "tests/compare/*", "tests/terminal/*", "tests/runs/*"),
    ),
    Room(
        "cli",
        2900,
        ("otel_rollout/cli/*", "otel_rollout/doctor/*", "otel_rollout/demo/*"),
        ("tests/cli/*", "tests/doctor/*", "tests/demo/*"),
    ),
    Room("hooks", 2700, ("otel_rollout/hooks/*",), ("tests/integrations/*", "tests/engines/*")),
    Room("exporters", 5300, ("exporters/*",), ("tests/exporters/*", "tests/integration/*")),
    Room("front", 2600, ("otel_rollout/*", "otel_rollout_command.py"), ("tests/*",)),
)

ALWAYS: Final = {
    "deploy/*": "tests/deploy",
    "docker-compose.yml": "tests/deploy",
    "docs/*": "tests/docs",
    "README.md": "tests/docs",
}
"""Folders of slow tests that belong to no room, by the files that they test."""


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="", help="the commit to compare with (default: where origin/main was left)")
    base = parser.parse_args().base
    print(f"{'room':<10} {'files':>5} {'lines':>7} {'aim':>7} {'tests':>7}")
    files = _git("ls-files", "*.py")
    sums = [0, 0, 0, 0]
    for room in ROOMS:
        source = [file for file in files if room_of(file) == room and not file.startswith("tests/")]
        tests = [file for file in files if room_of(file) == room and file.startswith("tests/")]
        row = [len(source), lines(source), room.aim, lines(tests)]
        sums = [total + number for total, number in zip(sums, row, strict=True)]
        print(f"{room.name:<10} {row[0]:>5} {row[1]:>7,} {row[2]:>7,} {row[3]:>7,}")
    print(f"{'all':<10} {sums[0]:>5} {sums[1]:>7,} {sums[2]:>7,} {sums[3]:>7,}")
    base = base or _left_from()
    touched = slow_tests(_git("diff", "--name-only", base))
    if touched:
        print(f"\nSlow tests of what differs from {base[:12]}:")
        print(f'  make test-slow ARGS="{" ".join(touched)}"')
    return 0


def room_of(file: str) -> Room | None:
    """Return the room that a file of source or of tests belongs to."""
    is_test = file.startswith("tests/")
    return next(
        (room for room in ROOMS if any(fnmatch(file, pattern) for pattern in (room.tests if is_test else room.source))),
        None,
    )


def slow_tests(changed: list[str]) -> list[str]:
    """Return the folders and files of slow tests that changed files ask for.

    Args:
        changed: Paths of files of the repository.
    """
    rooms = {room for file in changed if (room := room_of(file))}
    slow = _git("grep", "-lE", r"mark\.slow|pytest\.mark\.slow", "--", "tests/*.py")
    chosen = {_folder(file) for file in slow if room_of(file) in rooms}
    chosen |= {folder for pattern, folder in ALWAYS.items() if any(fnmatch(file, pattern) for file in changed)}
    return sorted(chosen)


def lines(files: list[str]) -> int:
    """Return the number of lines of files."""
    return sum((ROOT / file).read_bytes().count(b"\n") for file in files if (ROOT / file).exists())


def _folder(file: str) -> str:
    parent = Path(file).parent.as_posix()
    return file if parent == "tests" else parent


def _left_from() -> str:
    """Return the commit where this branch left origin/main, else HEAD."""
    found = subprocess.run(
        ["git", "merge-base", "HEAD", "origin/main"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "HEAD"


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr.strip())
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())
