"""Fetch Docker Compose, which checks docker-compose.yml without an engine.

    python scripts/docker_compose.py         # prints where the program is

It is Debian's package, unpacked into the cache folder of environments.py. That needs apt-get, dpkg-deb and a Debian
mirror among apt's sources, but not root: apt works in folders of its own.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from environments import cache_folder
except ImportError:  # imported as a part of the repository, not started as a program
    from scripts.environments import cache_folder

# Compose 2 is in Debian from trixie on; bookworm has Compose 1, which is no longer maintained.
SUITE = "trixie"
PACKAGE = "docker-compose"
VERSION = "2.26"
PROGRAM = "usr/libexec/docker/cli-plugins/docker-compose"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class NotHereError(Exception):
    """This machine has no apt or no Debian mirror."""


def ensure() -> Path:
    """Return the program, fetched now if it is not in the cache folder.

    Raises:
        NotHereError: It can't be had this way on this machine.
        subprocess.CalledProcessError: apt or dpkg failed; its output says why.
    """
    folder = cache_folder() / f"{PACKAGE}-{VERSION}"
    program = folder / PROGRAM
    if program.exists():
        return program
    mirror = debian_mirror()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as working:
                fetch(mirror, Path(working))
                shutil.rmtree(folder, ignore_errors=True)
                (Path(working) / "unpacked").rename(folder)
    return program


def debian_mirror() -> str:
    """Return the address of the Debian mirror that apt uses here.

    Raises:
        NotHereError: There is none.
    """
    missing = [name for name in ("apt-get", "dpkg-deb") if not shutil.which(name)]
    if missing or not KEYRING.exists():
        raise NotHereError(f"there is no {', '.join(missing) or KEYRING} here")
    # What an update would fetch, without fetching it.
    command = ["apt-get", "--print-uris", "update"]
    addresses = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    mirrors = re.findall(r"^'(\S+/debian)/+dists/", addresses, re.MULTILINE)
    if not mirrors:
        raise NotHereError("apt has no Debian mirror among its sources here")
    return mirrors[0]


def fetch(mirror: str, folder: Path) -> None:
    """Download the package and unpack it into the folder `unpacked`.

    Args:
        mirror: The address of a Debian mirror.
        folder: An empty folder.
    """
    sources = folder / "suite.sources"
    sources.write_text(f"Types: deb\nURIs: {mirror}\nSuites: {SUITE}\nComponents: main\nSigned-By: {KEYRING}\n")
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    apt = ["apt-get", "-qq"]
    for option in (
        f"Dir::Etc::sourcelist={sources}",
        "Dir::Etc::sourceparts=-",
        f"Dir::State::lists={folder / 'lists'}",
        f"Dir::Cache={folder / 'cache'}",
        # Root's apt would fetch as another user, who can't write here.
        "APT::Sandbox::User=root",
        "Acquire::Languages=none",
        "Acquire::Retries=3",
    ):
        apt += ["-o", option]
    run([*apt, "update"], folder)
    run([*apt, "download", f"{PACKAGE}={VERSION}.*"], folder)
    (package,) = folder.glob(f"{PACKAGE}_*.deb")
    run(["dpkg-deb", "--extract", str(package), str(folder / "unpacked")], folder)


def run(command: list[str], folder: Path) -> None:
    """Run a command; what it prints goes to stderr."""
    subprocess.run(command, check=True, cwd=folder, stdout=sys.stderr, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    print(ensure())
