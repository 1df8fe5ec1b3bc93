"""Python interpreters of other versions: those that this machine has, and Debian's where it has none.

A version that isn't installed is unpacked from a Debian suite into the cache folder, and started in a mount namespace
whose /usr is Debian's and whose other folders are the machine's: paths are the same inside and outside, and nothing is
left mounted when the process ends.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

try:
    from debian import NotHereError, unpack
    from environments import cache_folder
except ImportError:  # imported as a part of the repository, not started as a program
    from scripts.debian import NotHereError, unpack
    from scripts.environments import cache_folder

__all__ = ["Interpreter", "find"]

SUITES = {"3.14": "forky"}
"""The Debian suite that has a version which few machines have yet."""
PACKAGES = ("base-files", "bash", "coreutils", "dash", "grep", "libstdc++6", "mount", "tzdata")
"""Packages that tests start, or wheels link to, besides Python."""
DEBIANS_FOLDERS = ("bin", "boot", "etc", "lib", "lib32", "lib64", "libx32", "lost+found", "sbin", "usr", "var")
FILES_OF_THE_MACHINE = ("/etc/group", "/etc/hosts", "/etc/nsswitch.conf", "/etc/passwd", "/etc/resolv.conf")
CERTIFICATES = "/etc/ssl"


@dataclasses.dataclass(frozen=True)
class Interpreter:
    """A Python interpreter.

    Args:
        path: The program's path.
        version: Its version as it prints it.
        root: The Debian system that it runs in, or None.
    """

    path: Path
    version: str
    root: Path | None = None

    def command(self, arguments: list[str], folder: Path) -> list[str]:
        """Return the command that starts a program where this interpreter, and virtual environments of it, can run.

        Args:
            arguments: The program and its arguments.
            folder: The folder that it starts in.
        """
        return arguments if self.root is None else inside(self.root, arguments, folder)


def find(version: str) -> Interpreter:
    """Return an interpreter of a version such as `3.12`.

    Raises:
        NotHereError: There is none, and none can be had; the message says why.
    """
    for path in candidates(version):
        # A shim of pyenv is there for versions that it then refuses to start.
        found = examined(path)
        if found is not None and found.split()[0].startswith(f"{version}."):
            return Interpreter(path, found)
    if version not in SUITES:
        raise NotHereError("not on PATH, and neither uv nor pyenv has it")
    return from_debian(version)


def candidates(version: str) -> Iterator[Path]:
    """Yield the programs that may be this version."""
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield Path(on_path)
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if uv:
        found = printed([uv, "python", "find", "--no-python-downloads", "--no-project", "--system", version])
        yield from [Path(found)] if found else []
    if shutil.which("pyenv"):
        for name in (printed(["pyenv", "versions", "--bare"]) or "").split():
            prefix = printed(["pyenv", "prefix", name]) if name.startswith(f"{version}.") else None
            yield from [Path(prefix) / "bin" / "python"] if prefix else []


def printed(command: list[str]) -> str | None:
    """Return the output of a program; None if it fails."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return ran.stdout.strip() if ran.returncode == 0 else None


def examined(path: Path, root: Path | None = None) -> str | None:
    """Return an interpreter's version; None if it can't make virtual environments, or doesn't run."""
    command = [str(path), "-c", "import ensurepip, sys, venv; print(sys.version)"]
    return printed(command if root is None else inside(root, command, Path("/")))


def from_debian(version: str) -> Interpreter:
    """Return Debian's interpreter, unpacked now if it is not in the cache folder.

    Raises:
        NotHereError: It can't be unpacked or started here; the message says why.
    """
    if os.geteuid():
        raise NotHereError("not installed; Debian's needs root for a mount namespace")
    missing = [name for name in ("unshare", "mount", "chroot") if not shutil.which(name)]
    if missing:
        raise NotHereError(f"not installed; Debian's needs {', '.join(missing)}")
    packages = (f"python{version}-venv", *PACKAGES)
    digest = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:12]
    root = cache_folder() / f"debian-{SUITES[version]}-python{version}-{digest}"
    root.parent.mkdir(parents=True, exist_ok=True)
    with (root.parent / f"{root.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            print(f"unpacking Python {version} of Debian {SUITES[version]} into {root} …", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(dir=root.parent) as working:
                target = Path(working) / "root"
                try:
                    unpack(SUITES[version], packages, target, working=Path(working), with_dependencies=True)
                except subprocess.CalledProcessError as error:
                    raise NotHereError(f"Debian {SUITES[version]} can't be fetched: {shlex.join(error.cmd)}") from error
                target.rename(root)
    path = Path(f"/usr/bin/python{version}")
    found = examined(path, root)
    if found is None:
        raise NotHereError(f"the one of Debian {SUITES[version]} does not start in a mount namespace here")
    return Interpreter(path, found, root)


def inside(root: Path, arguments: list[str], folder: Path) -> list[str]:
    """Return a command with a Debian system in the place of the machine's; its PATH begins with the program's folder.

    Args:
        root: The Debian system.
        arguments: The program and its arguments.
        folder: The folder that it starts in.
    """
    folders = [path for path in Path("/").iterdir() if path.is_dir() and not path.is_symlink()]
    shared = [str(path) for path in folders if path.name not in DEBIANS_FOLDERS] + [CERTIFICATES]
    lines = []
    for name in (*shared, *FILES_OF_THE_MACHINE):
        if Path(name).exists():
            target = shlex.quote(f"{root}{name}")
            lines += [f"{'mkdir -p' if Path(name).is_dir() else 'touch'} {target}", f"mount --rbind {name} {target}"]
    path = f"{Path(arguments[0]).parent}:/usr/bin:/bin"
    lines.append(f'exec chroot {shlex.quote(str(root))} /usr/bin/env -C {shlex.quote(str(folder))} PATH={path} "$@"')
    return ["unshare", "--mount", "--propagation", "private", "sh", "-euc", "\n".join(lines), "sh", *arguments]
