"""Connections of anybody, before a token is known: they are bounded in number and in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from uvicorn.server import ServerState

from otel_rollout.receive import server
from otel_rollout.receive.server import BoundedConnection

SECONDS = 10.0
REQUEST = b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n"


async def answer(_scope, receive, send) -> None:
    """An application that reads a body and answers."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def listening() -> AsyncIterator[int]:
    """Gives the port of a server with such connections."""
    config, state = uvicorn.Config(answer, lifespan="off", log_level="critical", timeout_keep_alive=60), ServerState()
    config.load()
    server = await asyncio.get_running_loop().create_server(
        lambda: BoundedConnection(config, state, {}), "127.0.0.1", 0
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def closes(reader: asyncio.StreamReader) -> bool:
    """Return True once the server has closed the connection."""
    try:
        return await asyncio.wait_for(reader.read(1), SECONDS) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("before", [b"", REQUEST + b"abc"])
def test_head_that_does_not_come(monkeypatch, before) -> None:
    """The connection is closed, also behind a whole request."""
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.3)

    async def run() -> bool:
        async with listening() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(before)
            if before:
                assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SECONDS)
            writer.write(REQUEST[:20])
            closed = await closes(reader)
            writer.close()
            return closed

    assert asyncio.run(run())


def test_slow_body(monkeypatch) -> None:
    """A body has a time of its own: the connection stays."""
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.05)

    async def run() -> bytes:
        async with listening() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(REQUEST)
            for byte in (b"a", b"b", b"c"):
                await asyncio.sleep(0.2)
                writer.write(byte)
            line = await asyncio.wait_for(reader.readline(), SECONDS)
            writer.close()
            return line

    assert b"200 OK" in asyncio.run(run())


def test_too_many(monkeypatch) -> None:
    """One more than the bound is closed at once, the others are served; when one is gone the next is."""
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            writer.write(REQUEST + b"abc")
            return b"200 OK" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SECONDS)
        except (ConnectionError, asyncio.IncompleteReadError):
            return False

    async def run() -> list[bool]:
        async with listening() as port:
            opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            answered = [await ask(*each) for each in opened]
            opened[0][1].close()
            until = asyncio.get_running_loop().time() + SECONDS
            while asyncio.get_running_loop().time() < until:
                opened.append(await asyncio.open_connection("127.0.0.1", port))
                answered[3:] = [await ask(*opened[-1])]
                if answered[3]:
                    break
            for _, writer in opened:
                writer.close()
            return answered

    assert asyncio.run(run()) == [True, True, False, True]
