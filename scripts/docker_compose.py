"""Fetch Docker Compose, which checks docker-compose.yml without an engine.

    python scripts/docker_compose.py         # prints where the program is

It is Debian's package, unpacked into the cache folder of environments.py; see debian.py for what that needs.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from pathlib import Path

try:
    from debian import NotHereError, unpack
    from environments import cache_folder
except ImportError:  # imported as a part of the repository, not started as a program
    from scripts.debian import NotHereError, unpack
    from scripts.environments import cache_folder

__all__ = ["NotHereError", "ensure"]

# Compose 2 is in Debian from trixie on; bookworm has Compose 1, which is no longer maintained.
SUITE = "trixie"
PACKAGE = "docker-compose"
VERSION = "2.26"
PROGRAM = "usr/libexec/docker/cli-plugins/docker-compose"


def ensure() -> Path:
    """Return the program, fetched now if it is not in the cache folder.

    Raises:
        NotHereError: It can't be had this way on this machine.
        subprocess.CalledProcessError: apt or dpkg failed; its output has the reason.
    """
    folder = cache_folder() / f"{PACKAGE}-{VERSION}"
    program = folder / PROGRAM
    if program.exists():
        return program
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as working:
                unpacked = Path(working) / "unpacked"
                unpack(SUITE, [f"{PACKAGE}={VERSION}.*"], unpacked, working=Path(working), with_dependencies=False)
                shutil.rmtree(folder, ignore_errors=True)
                unpacked.rename(folder)
    return program


if __name__ == "__main__":
    print(ensure())
