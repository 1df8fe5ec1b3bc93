"""The collector's configuration as the collector puts it together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

__all__ = ["expand", "load", "merged"]


def load(path: Path) -> dict[str, Any]:
    """Return the content of a configuration file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def merged(locations: Iterable[str], find: Callable[[str], Path], variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration that a collector has that is started with these `--config` options.

    Args:
        locations: The values of the options: paths, or `yaml:` and a text with `::` between the keys.
        find: Where a path of the options is on this machine.
        variables: The collector's environment.
    """
    found: dict[str, Any] = {}
    for location in locations:
        if location.startswith("yaml:"):
            (keys, value), *_ = yaml.safe_load(location.removeprefix("yaml:")).items()
            for key in reversed(keys.split("::")):
                value = {key: value}
            found = merge(found, value)
        else:
            found = merge(found, load(find(location)))
    return expand(found, variables)


def merge(first: Any, second: Any) -> Any:
    """Return two configurations as one: maps are joined, of anything else the second one counts."""
    if isinstance(first, dict) and isinstance(second, dict):
        return {**first, **{key: merge(first.get(key), value) for key, value in second.items()}}
    return second


def expand(value: Any, variables: Mapping[str, str]) -> Any:
    """Return a value with each `${env:NAME:-default}` in it replaced."""
    if isinstance(value, dict):
        return {key: expand(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [expand(item, variables) for item in value]
    if isinstance(value, str):
        return re.sub(r"\$\{env:(\w+)(?::-([^}]*))?\}", lambda name: variables.get(name[1], name[2] or ""), value)
    return value
