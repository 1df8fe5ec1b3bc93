"""The options that commands share, and the types of arguments, which raise ArgumentTypeError with words for people."""

from __future__ import annotations

import argparse
import math
import os
import sys
import textwrap
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from otel_rollout import semconv

READ: Final = "the trace folder, a spool, or a file of OTLP JSON"
STEPS: Final = "a training step: 7, or 1,4,7, or 3..9, or 100..; or none"
TRACE_ID_DIGITS: Final = 32
MAX_PORT: Final = 65535


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Formats help; a word with hyphens, such as a file's name, stays whole."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_long_words=False, break_on_hyphens=False)


def _above_zero(read: Callable[[str], float], meaning: str) -> Callable[[str], float]:
    def check(text: str) -> float:
        with suppress(ValueError):
            number = read(text)
            if 0 < number < math.inf:
                return number
        raise argparse.ArgumentTypeError(f"{text!r} is not {meaning}")

    return check


positive = _above_zero(int, "a positive whole number")
seconds = _above_zero(float, "a number of seconds")


def port(text: str) -> int:
    """Return a port of the command line."""
    with suppress(ValueError):
        if 0 <= (port := int(text)) <= MAX_PORT:
            return port
    raise argparse.ArgumentTypeError(f"{text!r} is not a port: 0 to {MAX_PORT}")


def host(text: str) -> str:
    """Return a host of the command line, without the brackets that IPv6 has in URLs."""
    return text.removeprefix("[").removesuffix("]")


def byte_count(text: str) -> int:
    """Return a number of bytes, such as `512MiB`."""
    from otel_rollout.settings import read_bytes

    try:
        return read_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not {error}") from None


def steps_or_none(text: str) -> int | range | set[int] | set[None]:
    """Return steps, or a set of None for `none`."""
    return {None} if text == "none" else steps(text)


def steps(text: str) -> int | range | set[int]:
    """Return a step, several or a range."""
    first, dots, last = text.partition("..")
    try:
        if dots:
            steps_in_range = range(int(first or 0), int(last) + 1 if last else sys.maxsize)
            if not steps_in_range:
                raise ValueError
            return steps_in_range
        steps = {int(step) for step in text.split(",")}
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a step: 7, or 1,4,7, or 3..9, or 100..") from None
    return steps.pop() if len(steps) == 1 else steps


def threshold(text: str) -> tuple[str, float]:
    """Return the name and value of `NAME=VALUE`."""
    name, _, value = text.partition("=")
    with suppress(ValueError):
        number = float(value)
        if 0 <= number < math.inf:
            return name.strip(), number
    raise argparse.ArgumentTypeError(f"{text!r} is not a threshold with its value, such as truncated=0.05")


def share(text: str) -> float:
    """Return a share, from 0 to 1."""
    with suppress(ValueError):
        if 0 <= (value := float(text)) <= 1:
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a share: 0 to 1, such as 0.02")


def range_of_rewards(text: str) -> tuple[float | None, float | None]:
    """Return the lowest and the highest reward; None for an open end."""
    low, dots, high = text.partition("..")
    if not dots:
        high = low
    try:
        bounds = (float(low) if low else None, float(high) if high else None)
    except ValueError:
        bounds = (math.nan, None)
    if any(bound is not None and math.isnan(bound) for bound in bounds) or bounds == (None, None):
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of rewards: 0.5..1, or 0.5.., or ..0.5, or 1")
    lowest, highest = bounds
    if lowest is not None and highest is not None and lowest > highest:
        raise argparse.ArgumentTypeError(f"{text!r} has no reward in it: the lower one comes first, {high}..{low}")
    return bounds


def trace_id(text: str) -> str:
    """Return the beginning of a trace id, in lower case."""
    digits = text.lower().removeprefix("0x")
    if not digits or len(digits) > TRACE_ID_DIGITS or set(digits) - set("0123456789abcdef"):
        raise argparse.ArgumentTypeError(f"{text!r} is not the beginning of a trace id: 32 hexadecimal digits")
    return digits


def exit_codes(done: str, *, failed: str = "", interrupted: str = "interrupted") -> str:
    """Return the exit codes for the end of a command's help.

    Args:
        done: The meaning of 0.
        failed: The meaning of 1, if the command has it.
        interrupted: The meaning of 130.
    """
    codes = {
        0: done,
        1: failed,
        2: "the command line, the folder, a setting or an extra needs a change",
        130: interrupted,
        141: "nobody reads the output any more",
    }
    return "exit codes:\n" + "".join(f"  {code:<3}  {meaning}\n" for code, meaning in codes.items() if meaning)


def add_seconds(parser: argparse.ArgumentParser, option: str, meaning: str, default: float | None = 60.0) -> None:
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


def add_attempt(parser: Any) -> None:
    """Add the option for an attempt of a resumed run."""
    parser.add_argument(
        "--attempt",
        type=positive,
        metavar="N",
        help="an attempt of a resumed run, with the steps that a later one has overtaken, which count nowhere else",
    )


def add_trace(parser: argparse._ActionsContainer) -> None:
    """Add the option of a trajectory's id."""
    parser.add_argument("--trace", metavar="ID", type=trace_id, help="its trace id; the beginning will do")


def add_filters(parser: argparse.ArgumentParser, *, has_attempts: bool = True) -> None:
    """Add the filters of trajectories.

    Args:
        parser: The command's.
        has_attempts: False if trajectories are taken as they are in the folder, of all attempts of a run.
    """
    group = parser.add_argument_group("which trajectories", "All filters that are given must agree.")
    add_steps(group)
    group.add_argument("--sample", dest="sample_index", metavar="INDEX", help="a prompt, by its sample_index")
    group.add_argument("--rollout", dest="rollout_n", metavar="N", help="a rollout of the prompt, by its rollout_n")
    passes = group.add_mutually_exclusive_group()
    passes.add_argument("--validate", action="store_const", const=True, help="validation only")
    passes.add_argument("--train", dest="validate", action="store_const", const=False, help="no validation")
    add_run(group)
    if has_attempts:
        add_attempt(group)
    group.add_argument("--status", choices=semconv.STATUSES, help="how it ended")
    group.add_argument(
        "--reward",
        type=range_of_rewards,
        metavar="MIN..MAX",
        help="both included; 0.5.. and ..0.5 are open",
    )
