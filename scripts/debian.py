"""Packages of a Debian suite, fetched and unpacked without installing them.

Neither root nor a change to the machine is needed: apt works in folders of its own. It takes apt-get, dpkg-deb and a
Debian mirror among apt's sources.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["NotHereError", "unpack"]

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class NotHereError(Exception):
    """It can't be had on this machine; the message says why."""


def unpack(suite: str, packages: Iterable[str], target: Path, *, working: Path, with_dependencies: bool) -> None:
    """Unpack packages of a suite into a folder.

    Args:
        suite: The suite's code name.
        packages: Their names, as `name` or `name=version`.
        target: The folder that they are unpacked into; made if it isn't there.
        working: An empty folder for what is downloaded.
        with_dependencies: True to unpack the packages that they depend on too.

    Raises:
        NotHereError: This machine has no apt or no Debian mirror.
        subprocess.CalledProcessError: apt or dpkg failed; its output has the reason.
    """
    sources = working / "suite.sources"
    sources.write_text(
        f"Types: deb\nURIs: {debian_mirror()}\nSuites: {suite}\nComponents: main\nSigned-By: {KEYRING}\n"
    )
    for name in ("lists/partial", "cache/archives/partial"):
        (working / name).mkdir(parents=True)
    # No package counts as installed.
    (working / "status").touch()
    apt = ["apt-get", "-qq"]
    for option in (
        f"Dir::Etc::sourcelist={sources}",
        "Dir::Etc::sourceparts=-",
        f"Dir::State::lists={working / 'lists'}",
        f"Dir::State::status={working / 'status'}",
        f"Dir::Cache={working / 'cache'}",
        # Root's apt would fetch as another user, who can't write here.
        "APT::Sandbox::User=root",
        "Debug::NoLocking=true",
        "Acquire::Languages=none",
        "Acquire::Retries=3",
    ):
        apt += ["-o", option]
    run([*apt, "update"], working)
    if with_dependencies:
        run([*apt, "install", "--yes", "--download-only", "--no-install-recommends", *packages], working)
    else:
        run([*apt, "download", *packages], working)
    target.mkdir(parents=True, exist_ok=True)
    for package in sorted([*working.glob("*.deb"), *working.glob("cache/archives/*.deb")]):
        run(["dpkg-deb", "--extract", str(package), str(target)], working)


def debian_mirror() -> str:
    """Return the address of the Debian mirror that apt uses here.

    Raises:
        NotHereError: There is none.
    """
    missing = [name for name in ("apt-get", "dpkg-deb") if not shutil.which(name)]
    if missing or not KEYRING.exists():
        raise NotHereError(f"there is no {', '.join(missing) or KEYRING} here")
    # List the files that an update would fetch, without fetching them.
    command = ["apt-get", "--print-uris", "update"]
    addresses = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    mirrors = re.findall(r"^'(\S+/debian)/+dists/", addresses, re.MULTILINE)
    if not mirrors:
        raise NotHereError("apt has no Debian mirror among its sources here")
    return mirrors[0]


def run(command: list[str], folder: Path) -> None:
    """Run a command; what it prints goes to stderr."""
    subprocess.run(command, check=True, cwd=folder, stdout=sys.stderr, stdin=subprocess.DEVNULL)
