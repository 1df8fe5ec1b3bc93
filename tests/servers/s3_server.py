"""An S3 for tests: moto's server, which keeps its buckets in memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from .process import ServerProcess, answers_http, free_port

__all__ = ["S3Server"]


class S3Server:
    """moto's server on a free port.

    Args:
        environment: The virtual environment that moto is installed in.
        uncaptured: See `ServerProcess`.
    """

    def __init__(
        self, environment: Path, *, uncaptured: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        self.variables = {
            "AWS_ENDPOINT_URL": self.address,
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        """The environment that its clients need."""
        self.process = ServerProcess(
            "s3",
            [str(environment / "bin" / "moto_server"), "-H", "127.0.0.1", "-p", str(port)],
            lambda: answers_http(f"{self.address}/moto-api/"),
            uncaptured=uncaptured,
        )

    def __enter__(self) -> S3Server:  # noqa: PYI034 - typing.Self needs Python 3.11
        self.process.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.process.stop()
