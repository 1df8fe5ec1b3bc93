"""Find the OpenTelemetry Collector that the tests start.

    python scripts/otelcol.py         # prints where the program is

It is $TEST_OTELCOL, else `otelcol` or `otelcol-contrib` on PATH, else a packed program next to the checkout
(../shared/bin/otelcol-VERSION-linux-amd64.xz; $TEST_PROGRAMS names another folder than ../shared), which is
unpacked into the cache folder of environments.py.
"""

from __future__ import annotations

import fcntl
import lzma
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

try:
    from environments import cache_folder
except ImportError:  # imported as a part of the repository, not started as a program
    from scripts.environments import cache_folder

__all__ = ["NotHereError", "ensure", "shared_folder"]

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("otelcol", "otelcol-contrib")
PACKED = "bin/otelcol-*-linux-amd64.xz"


class NotHereError(Exception):
    """There is no collector on this machine; the message says where it was looked for."""


def ensure() -> Path:
    """Return the program, unpacked now if it is not in the cache folder.

    Raises:
        NotHereError: There is none on this machine.
    """
    if given := os.environ.get("TEST_OTELCOL"):
        if not (found := shutil.which(given)):
            raise NotHereError(f"TEST_OTELCOL={given} is no program")
        return Path(found)
    for name in NAMES:
        if found := shutil.which(name):
            return Path(found)
    folder = shared_folder()
    packed = sorted(folder.glob(PACKED)) if folder is not None and _is_linux_amd64() else []
    if not packed:
        raise NotHereError(f"no OpenTelemetry Collector: neither $TEST_OTELCOL, nor {' or '.join(NAMES)} on PATH")
    return _unpacked(packed[-1])


def shared_folder() -> Path | None:
    """Return the folder next to the checkout that may have a packed program; None if there is none."""
    given = os.environ.get("TEST_PROGRAMS")
    # A worktree is one folder deeper than the checkout.
    folders = [Path(given)] if given else [parent / "shared" for parent in ROOT.parents[:2]]
    return next((folder for folder in folders if folder.is_dir()), None)


def _is_linux_amd64() -> bool:
    return sys.platform == "linux" and platform.machine() == "x86_64"


def _unpacked(packed: Path) -> Path:
    program = cache_folder() / packed.stem
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    with program.with_name(f"{program.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            with tempfile.TemporaryDirectory(dir=program.parent) as working:
                new = Path(working) / program.name
                with lzma.open(packed) as source, new.open("wb") as target:
                    shutil.copyfileobj(source, target, 2**20)
                new.chmod(0o755)
                new.rename(program)
    return program


if __name__ == "__main__":
    print(ensure())
