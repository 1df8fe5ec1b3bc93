"""`python -m benchmarks.file`: the trace folder beside OTLP JSON lines, Parquet with DuckDB, and SQLite with blobs.

Each is given the same spans of a synthetic training run, batch by batch as delivery hands them to exporters, then asked
for the roots of one step, one trajectory, all spans of a step, and statistics of all groups. DuckDB and pyarrow come
from an environment of their own, made on first use (`python scripts/environments.py file_stores`).
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import shutil
import site
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.trace_files.load import Load
from benchmarks.trace_files.measure import measure
from benchmarks.trace_files.stores.store import Store
from benchmarks.trace_files.table import as_text

STEPS_PER_GIGABYTE = 20
PROMPTS, ROLLOUTS = 18, 8
BYTES_NEEDED = 2.6
"""What all stores take on disk together, per byte of the load."""
STORES = {
    "folder": ("trace_folder", "TraceFolder"),
    "json": ("json_lines", "JsonLines"),
    "zstd": ("json_lines", "ZstdJsonLines"),
    "parquet": ("parquet", "Parquet"),
    "sqlite": ("sqlite", "Sqlite"),
}


def main() -> int:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.file", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print all figures as JSON in place of the tables")
    parser.add_argument("--smoke", action="store_true", help="a short run that shows that everything works; seconds")
    parser.add_argument(
        "--gigabytes",
        type=float,
        default=1.0,
        help="how much is written, as OTLP JSON, about (default: 1; 2,880 rollouts)",
    )
    parser.add_argument("--rounds", type=int, help="how often each store is read (default: 7)")
    parser.add_argument("--stores", default=",".join(STORES), help="which ones (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="where the stores are written, and removed (default: $TMPDIR)")
    arguments = parser.parse_args()
    names = arguments.stores.split(",")
    if unknown := [name for name in names if name not in STORES]:
        parser.error(f"no store is called {unknown[0]!r}; there are: {', '.join(STORES)}")
    if arguments.gigabytes <= 0:
        parser.error(f"--gigabytes {arguments.gigabytes}: this should be above 0")

    gigabytes = 0.05 if arguments.smoke else arguments.gigabytes
    rounds = arguments.rounds or (1 if arguments.smoke else 7)
    needed, free = (
        int(gigabytes * BYTES_NEEDED * 1e9),
        shutil.disk_usage(arguments.folder or tempfile.gettempdir()).free,
    )
    if free < needed:
        parser.error(f"the stores take {needed / 1e9:.1f} GB, there are {free / 1e9:.1f}: name another --folder")
    result = run(names, gigabytes, rounds, arguments.folder)
    print(json.dumps(result, indent=2) if arguments.json else as_text(result))
    return 0 if "folder" not in result["skipped"] else 1


def run(names: list[str], gigabytes: float, rounds: int, folder: Path | None) -> dict[str, Any]:
    """Return the figures of both loads."""
    makers, skipped = [], {}
    for name in names:
        store = _load_store(name)
        if isinstance(store, str):
            skipped[name] = store
        else:
            makers.append(store)
    steps = max(1, round(STEPS_PER_GIGABYTE * gigabytes))
    loads = []
    for title, repeats_history in (("history repeated at each turn", True), ("new messages alone", False)):
        load = Load(title, steps, PROMPTS, ROLLOUTS, repeats_history)
        with tempfile.TemporaryDirectory(prefix="otel-rollout-bench-", dir=folder) as own:
            loads.append(measure(load, makers, Path(own), rounds, _progress))
    _progress("")
    return {"loads": loads, "skipped": skipped, "versions": _versions()}


def _load_store(name: str) -> type[Store] | str:
    """Return a store's class, or why it can't be measured here."""
    module, cls = STORES[name]
    try:
        if name == "parquet":
            _add_peers()
        store: type[Store] = getattr(importlib.import_module(f"benchmarks.trace_files.stores.{module}"), cls)
    except (ImportError, OSError, subprocess.CalledProcessError) as error:
        return f"{type(error).__name__}: {error}"
    return store


def _add_peers() -> None:
    """Make the packages of the peers' environment importable, behind our own."""
    from scripts.environments import ensure

    for packages in ensure("file_stores").glob("lib/python*/site-packages"):
        site.addsitedir(str(packages))


def _versions() -> dict[str, str]:
    names = ("otel-rollout", "orjson", "zstandard", "duckdb", "pyarrow")
    installed = {name: found.version for name in names for found in metadata.distributions(name=name)}
    return {"Python": platform.python_version(), **installed}


_last = ""


def _progress(text: str) -> None:
    """Say on a terminal what is being done; elsewhere nothing."""
    global _last  # noqa: PLW0603
    if text != _last and sys.stderr.isatty():
        width = shutil.get_terminal_size().columns - 1
        print(f"\r{text[:width]:<{width}}", end="" if text else "\r", file=sys.stderr, flush=True)
    _last = text


if __name__ == "__main__":
    sys.exit(main())
