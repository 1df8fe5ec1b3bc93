"""trackio's dashboard for tests: its page and its HTTP API."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from .process import ServerProcess, answers_http, free_port

__all__ = ["TrackioServer"]


class TrackioServer:
    """`trackio show` on a free port, without the network.

    Args:
        environment: The virtual environment that trackio is installed in.
        folder: trackio's folder.
        uncaptured: See `ServerProcess`.
    """

    write_token = "token-of-the-tests"

    def __init__(
        self,
        environment: Path,
        folder: Path,
        *,
        uncaptured: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        self.process = ServerProcess(
            "trackio",
            [str(environment / "bin" / "trackio"), "show", "--host", "127.0.0.1"],
            lambda: answers_http(self.address),
            environment={
                "TRACKIO_DIR": str(folder),
                "TRACKIO_WRITE_TOKEN": self.write_token,
                "GRADIO_SERVER_PORT": str(port),
                "HF_HUB_OFFLINE": "1",
                # It opens the page in a browser otherwise.
                "BROWSER": "true",
            },
            uncaptured=uncaptured,
        )

    def __enter__(self) -> TrackioServer:  # noqa: PYI034 - typing.Self needs Python 3.11
        self.process.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.process.stop()
