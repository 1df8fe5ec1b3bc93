"""What the commands over a trace folder share: the folder, and which of its trajectories are meant."""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path

from otel_rollout import semconv
from otel_rollout.trace_folder.selection import Filters

__all__ = ["add_filters", "add_folder", "filters_of"]


def add_folder(parser: argparse.ArgumentParser) -> None:
    """Add the folder, as the argument `folder`."""
    parser.add_argument(
        "folder",
        metavar="DIR",
        nargs="?",
        type=Path,
        default=Path(os.environ.get("OTEL_ROLLOUT_DIR") or "rollout-traces"),
        help="the trace folder, or a spool (default: OTEL_ROLLOUT_DIR, else rollout-traces)",
    )


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Add the filters; `filters_of` reads them."""
    group = parser.add_argument_group("which trajectories", "All filters that are given must agree.")
    group.add_argument("--step", type=_steps, metavar="N", help="a training step: 7, or 1,4,7, or 3..9, or 100..")
    group.add_argument("--sample", metavar="INDEX", help="a prompt, by its sample_index")
    group.add_argument("--rollout", metavar="N", help="a rollout of the prompt, by its rollout_n")
    passes = group.add_mutually_exclusive_group()
    passes.add_argument("--validate", action="store_const", const=True, help="validation only")
    passes.add_argument("--train", dest="validate", action="store_const", const=False, help="no validation")
    group.add_argument("--experiment", metavar="NAME", help="an experiment")
    group.add_argument("--status", choices=semconv.STATUSES, help="what became of it")
    group.add_argument(
        "--reward",
        type=_range_of_rewards,
        metavar="MIN..MAX",
        help="both included; 0.5.. and ..0.5 are open; --reward=-1..0 where MIN is negative",
    )


def filters_of(arguments: argparse.Namespace) -> Filters:
    """Return the filters as keyword arguments of `read`."""
    return Filters(
        step=arguments.step,
        sample_index=arguments.sample,
        rollout_n=arguments.rollout,
        validate=arguments.validate,
        experiment=arguments.experiment,
        status=arguments.status,
        reward=arguments.reward,
    )


def _steps(text: str) -> int | range | set[int]:
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


def _range_of_rewards(text: str) -> tuple[float | None, float | None]:
    low, dots, high = text.partition("..")
    if not dots:
        high = low
    try:
        bounds = (float(low) if low else None, float(high) if high else None)
    except ValueError:
        bounds = (math.nan, None)
    if any(bound is not None and math.isnan(bound) for bound in bounds) or bounds == (None, None):
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of rewards: 0.5..1, or 0.5.., or ..0.5, or 1")
    return bounds
