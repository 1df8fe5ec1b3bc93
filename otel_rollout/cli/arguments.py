"""Values of the command line that are checked while it is parsed."""

from __future__ import annotations

import argparse

__all__ = ["positive", "seconds"]


def positive(text: str) -> int:
    """Return a whole number from 1 on.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return number


def seconds(text: str) -> float:
    """Return a time in seconds, more than 0.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return number
