"""Machines for tests: network namespaces on one bridge, each reached by its name, which leave nothing behind.

Everything is made inside namespaces of its own (processes, mounts, network): the machine that runs the tests sees none
of it, and the kernel takes all of it away when the first process in there ends, which it does when its standard input
is closed: also when the tests were killed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["Network", "why_not"]

READY = "ready"
NAMESPACES = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")


def why_not() -> str | None:
    """Return why namespaces can't be made here; None where they can."""
    missing = [name for name in ("unshare", "nsenter", "ip", "mount") if not shutil.which(name)]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if os.geteuid():
        return "network namespaces need root"
    tried = subprocess.run(
        [*NAMESPACES, "ip", "link", "add", "bridge", "type", "bridge"], capture_output=True, text=True, check=False
    )
    return f"no namespace or no bridge can be made here: {tried.stderr.strip()}" if tried.returncode else None


class Network:
    """One network with a namespace for each machine.

    Args:
        machines: Their names, with all further names that lead to each.
        volumes: Folders that stand at a path below /mnt inside.
    """

    def __init__(self, machines: Mapping[str, Iterable[str]], volumes: Mapping[str, Path]) -> None:
        self._setup = "\n".join([*set_up_mounts(volumes), *set_up_machines(machines), f"echo {READY}", "exec cat"])
        self._inside = ""
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Network:  # noqa: PYI034 - typing.Self needs Python 3.11
        self._process = subprocess.Popen(
            [*NAMESPACES, "sh", "-euc", self._setup],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != READY:
            raise RuntimeError(f"the network could not be made: {self._process.communicate()[1]}")
        pid = self._process.pid
        self._inside = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]
        return self

    def __exit__(self, *unused: object) -> None:
        assert self._process is not None
        self._process.communicate()

    def command(self, machine: str, command: Iterable[str]) -> list[str]:
        """Return the command that runs `command` on a machine, in the folder that it is started in."""
        enter = ["nsenter", "--target", self._inside, "--mount", "--net", "--pid", "--wd=."]
        return [*enter, "ip", "netns", "exec", machine, *command]

    def run(self, machine: str, command: Iterable[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command on a machine to its end, within two minutes."""
        return subprocess.run(
            self.command(machine, command), capture_output=True, text=True, check=False, timeout=120, **options
        )


def set_up_mounts(volumes: Mapping[str, Path]) -> list[str]:
    """Return the shell lines that give the network its own names and its volumes."""
    lines = ["mount -t tmpfs tmpfs /run", "mkdir /run/netns", "cp /etc/hosts /run/hosts"]
    lines += ["mount --bind /run/hosts /etc/hosts", "mount -t tmpfs tmpfs /mnt"]
    for path, folder in volumes.items():
        lines += [f"mkdir -p {shlex.quote(path)}", f"mount --bind {shlex.quote(str(folder))} {shlex.quote(path)}"]
    return lines


def set_up_machines(machines: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the shell lines that make the machines and let each one find all others by name."""
    lines = ["ip link set lo up", "ip link add bridge type bridge", "ip link set bridge up"]
    for number, (machine, names) in enumerate(machines.items()):
        address = f"10.0.0.{number + 1}"
        lines += [
            f"ip netns add {machine}",
            f"ip link add port{number} type veth peer name eth0 netns {machine}",
            f"ip link set port{number} master bridge up",
            f"ip -n {machine} link set lo up",
            f"ip -n {machine} address add {address}/24 dev eth0",
            f"ip -n {machine} link set eth0 up",
            f"echo {address} {' '.join([machine, *names])} >> /run/hosts",
        ]
    return lines
