"""Options that several commands have."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, Final

from otel_rollout import semconv
from otel_rollout.cli.argument_types import range_of_rewards, seconds, steps_or_none

__all__ = [
    "STEPS",
    "add_command",
    "add_filters",
    "add_folder",
    "add_run",
    "add_seconds",
    "add_steps",
    "default_folder",
    "exit_codes",
]

STEPS: Final = "a training step: 7, or 1,4,7, or 3..9, or 100..; or none"


def exit_codes(done: str, *, failed: str = "", interrupted: str = "interrupted") -> str:
    """Return the exit codes for the end of a command's help.

    Args:
        done: What 0 means.
        failed: What 1 means, if the command has it.
        interrupted: What 130 means.
    """
    codes = {
        0: done,
        1: failed,
        2: "the command line, the folder, a setting or an extra needs a change",
        130: interrupted,
        141: "nobody reads the output any more",
    }
    return "exit codes:\n" + "".join(f"  {code:<3}  {meaning}\n" for code, meaning in codes.items() if meaning)


def add_command(commands: Any, name: str, short: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """Add a command, and return its parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=short,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def add_seconds(parser: argparse.ArgumentParser, option: str, meaning: str, default: float = 60.0) -> None:
    """Add an option with a number of seconds."""
    parser.add_argument(option, type=seconds, default=default, metavar="SECONDS", help=meaning)


def add_folder(parser: argparse.ArgumentParser, meaning: str = "the trace folder, or a spool") -> None:
    """Add the argument for the trace folder."""
    parser.add_argument(
        "folder",
        metavar="DIR",
        nargs="?",
        type=Path,
        default=default_folder(),
        help=f"{meaning} (default: OTEL_ROLLOUT_DIR, else rollout-traces)",
    )


def default_folder() -> Path:
    """Return the trace folder that is meant if none is named."""
    return Path(os.environ.get("OTEL_ROLLOUT_DIR") or "rollout-traces")


def add_steps(parser: Any) -> None:
    """Add the option for training steps."""
    parser.add_argument("--step", type=steps_or_none, metavar="N", help=STEPS)


def add_run(parser: Any) -> None:
    """Add the options for an experiment and a run."""
    parser.add_argument("--experiment", metavar="NAME", help="an experiment")
    parser.add_argument("--run", metavar="ID", help="a run, by its run_id; the beginning will do")


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Add the filters of trajectories."""
    group = parser.add_argument_group("which trajectories", "All filters that are given must agree.")
    add_steps(group)
    group.add_argument("--sample", dest="sample_index", metavar="INDEX", help="a prompt, by its sample_index")
    group.add_argument("--rollout", dest="rollout_n", metavar="N", help="a rollout of the prompt, by its rollout_n")
    passes = group.add_mutually_exclusive_group()
    passes.add_argument("--validate", action="store_const", const=True, help="validation only")
    passes.add_argument("--train", dest="validate", action="store_const", const=False, help="no validation")
    add_run(group)
    group.add_argument("--status", choices=semconv.STATUSES, help="how it ended")
    group.add_argument(
        "--reward",
        type=range_of_rewards,
        metavar="MIN..MAX",
        help="both included; 0.5.. and ..0.5 are open",
    )
