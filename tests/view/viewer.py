"""A viewer's server in a thread of the test, on a free port, and a client that has its token."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

from otel_rollout.look.view import RunState, listen, make_application, make_server

__all__ = ["TOKEN", "Viewer", "wait_for"]

TOKEN = "the-token-of-the-tests"
SECONDS = 120.0


def wait_for(condition: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """Wait until a condition holds, and return its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "the condition did not hold in time"
        time.sleep(0.02)
    return value


class Viewer:
    """A server over folders, as `otel-rollout view` starts it."""

    def __init__(self, *folders: Path, hosts: Sequence[str] = ()) -> None:
        self.state = RunState(folders)
        listener = listen("127.0.0.1", 0)
        self.application = make_application(self.state, TOKEN, hosts)
        self._server = make_server(self.application)
        self.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve(sockets=[listener])))
        self.client = httpx.Client(
            base_url=self.address,
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=SECONDS,
            trust_env=False,
            # With a bound, its pool closes connections that another thread has just been given (encode/httpcore#1110).
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        )

    def get(self, path: str) -> Any:
        """Return the JSON of an answer that succeeds."""
        answer = self.client.get(f"/api/{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def run(self) -> Any:
        """Return the run once all of it is read: on a busy machine the first answer is without its steps."""
        return wait_for(lambda: (found := self.get("run"))["progress"] is None and found)

    def __enter__(self) -> Viewer:  # noqa: PYI034 - typing.Self needs Python 3.11
        self._thread.start()
        wait_for(lambda: self._server.started)
        return self

    def __exit__(self, *unused: object) -> None:
        self.client.close()
        self._server.should_exit = True
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
