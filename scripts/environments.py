"""Make the virtual environments of the servers and clients that tests, benchmarks and screenshots run.

Each has dependencies that don't go together with ours or with each other's, so each lives in an environment of its
own, in a cache folder, made once and reused until its requirements change:

    python scripts/environments.py            # those that `make test` needs
    python scripts/environments.py phoenix    # this one; prints where it is

The cache folder is $TEST_CACHE, else ~/.cache/otel-rollout.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parent.parent / "tests" / "servers"
FAST = frozenset({"mlflow", "phoenix", "s3", "trackio", "verl", "weave", "weave_client"})
"""Those that `make test` needs; slow tests, benchmarks and screenshots make the others when they start."""


def names() -> list[str]:
    """Return the names of the environments that can be made."""
    return sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))


def cache_folder() -> Path:
    """Return the folder that environments are made in."""
    return Path(os.environ.get("TEST_CACHE") or Path.home() / ".cache" / "otel-rollout")


def ensure(name: str) -> Path:
    """Return the folder of an environment, made now if it is not there in this form.

    Args:
        name: The stem of its file in tests/servers.

    Raises:
        subprocess.CalledProcessError: The installer failed; its output has the reason.
    """
    requirements = REQUIREMENTS / f"{name}.txt"
    folder = _folder(name)
    done = folder / ".complete"
    if done.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            print(f"making the {name} environment in {folder} …", file=sys.stderr, flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            python = str(folder / "bin" / "python")
            install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*install, "uv"], check=True)
            uv = [str(folder / "bin" / "uv"), "pip", "install", "--quiet", "--compile-bytecode", "--python", python]
            constraints = requirements.with_suffix(".constraints")
            limits = ["-c", str(constraints)] if constraints.exists() else []
            subprocess.run([*uv, *find_links(), "-r", str(requirements), *limits], check=True)
            # A package whose own requirements can't be met here, or aren't needed.
            alone = requirements.with_suffix(".nodeps")
            if alone.exists():
                subprocess.run([*uv, "--no-deps", "-r", str(alone)], check=True)
            done.touch()
    return folder


def is_made(name: str) -> bool:
    """Return True if an environment is there in this form."""
    return (_folder(name) / ".complete").exists()


def _folder(name: str) -> Path:
    requirements = REQUIREMENTS / f"{name}.txt"
    parts = [requirements.with_suffix(suffix) for suffix in (".txt", ".constraints", ".nodeps")]
    pins = b"".join(part.read_bytes() for part in parts if part.exists())
    digest = hashlib.sha256(pins + sys.version.encode()).hexdigest()[:12]
    return cache_folder() / f"{name}-{digest}"


def find_links() -> list[str]:
    """Return uv's options for the folders that pip is configured to look in: uv does not read pip's configuration."""
    found = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.find-links"], capture_output=True, text=True, check=False
    )
    links = [*os.environ.get("PIP_FIND_LINKS", "").split(), *found.stdout.split()]
    return [option for link in dict.fromkeys(links) for option in ("--find-links", link)]


def main() -> None:
    """Make the environments that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "name", nargs="*", help=f"which ones, of: {', '.join(names())} (default: {', '.join(sorted(FAST))})"
    )
    chosen = parser.parse_args().name or sorted(FAST)
    for name in chosen:
        if name not in names():
            parser.error(f"no environment is called {name!r}; there are: {', '.join(names())}")
        print(ensure(name))


if __name__ == "__main__":
    main()
