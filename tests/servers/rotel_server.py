"""A rotel collector for tests: takes OTLP over gRPC and HTTP and forwards it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from .process import ServerProcess, free_port, listens

__all__ = ["Rotel"]


class Rotel:
    """A rotel-agent in front of another OTLP receiver.

    Args:
        environment: The virtual environment that rotel is installed in.
        forward_to: The gRPC endpoint of the receiver behind it.
        folder: See `ServerProcess`.
        uncaptured: See `ServerProcess`.
    """

    def __init__(
        self,
        environment: Path,
        forward_to: str,
        *,
        folder: Path | None = None,
        uncaptured: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        http, grpc = free_port(), free_port()
        self.address = f"http://127.0.0.1:{http}"
        self.grpc_address = f"http://127.0.0.1:{grpc}"
        (binary,) = environment.glob("lib/python3*/site-packages/rotel/rotel-agent")
        self.process = ServerProcess(
            "rotel",
            [
                str(binary), "start",
                "--exporter", "otlp",
                "--otlp-grpc-endpoint", f"127.0.0.1:{grpc}",
                "--otlp-http-endpoint", f"127.0.0.1:{http}",
                "--otlp-exporter-endpoint", forward_to,
                "--otlp-exporter-protocol", "grpc",
            ],
            lambda: listens(http) and listens(grpc),
            environment={"LD_LIBRARY_PATH": library_folder(environment / "bin" / "python")},
            seconds_to_start=30.0,
            folder=folder,
            uncaptured=uncaptured,
        )  # fmt: skip

    def endpoint(self, protocol: str) -> str:
        """Return the OTLP endpoint for a value of OTEL_EXPORTER_OTLP_PROTOCOL."""
        return self.grpc_address if protocol == "grpc" else self.address

    def __enter__(self) -> Rotel:  # noqa: PYI034 - typing.Self needs Python 3.11
        self.process.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.process.stop()


def library_folder(python: Path) -> str:
    """Return where an interpreter's libpython is: rotel-agent is linked to it, without a path."""
    command = [str(python), "-c", "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
