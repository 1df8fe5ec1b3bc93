"""Writes request bodies into the folder on a thread of its own; the bytes that wait are bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from otel_rollout.folder.compression import decompress
from otel_rollout.folder.folder_writer import FolderWriter
from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.log_once import internal_error
from otel_rollout.otlp import TooManySpansError, has_too_many_values
from otel_rollout.receive.adoption import adopt
from otel_rollout.receive.span_batch import SpanBatch

TICK_SECONDS: Final = 0.2
ADOPT_SECONDS: Final = 60.0
"""Seconds between looks for journals that other receivers have left."""
ADOPT_PART_SECONDS: Final = 0.1
MIN_WRITING_SECONDS: Final = 0.05
WRITING_RATIO: Final = 2.0
"""Writing traces takes twice the time of taking their spans at most."""
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Limits:
    """The limits of a receiver.

    Args:
        body_bytes: The bytes of a request's body as it comes.
        decompressed_bytes: The bytes of a request's body once decompressed.
        spans: The spans of a request; they take a multiple of their bytes in memory and time.
        values: The values of a request in JSON, which is parsed as a whole.
        waiting_bytes: The bytes of all bodies that are being read, or wait to be stored.
        body_seconds: The seconds for a body to come.
    """

    body_bytes: int = 32 * 2**20
    decompressed_bytes: int = 64 * 2**20
    spans: int = 100_000
    values: int = 2**21
    waiting_bytes: int = 96 * 2**20
    body_seconds: float = 60.0


@dataclass
class Totals:
    """The counts of a receiver since its start."""

    requests: int = 0
    spans: int = 0
    doubles: int = 0
    refused: int = 0
    refused_requests: int = 0
    """Requests that no repetition helps, of which nothing is stored."""
    adopted: int = 0
    turned_away: int = 0
    trouble: str = ""
    """The last failure of the disk; empty once a write succeeds."""


class Receiver:
    """Stores the spans of requests; its folder is touched by one thread.

    Args:
        folder: The folder.
        limits: The limits.
    """

    def __init__(self, folder: FolderWriter, limits: Limits | None = None) -> None:
        self.folder = folder
        self.limits = limits or Limits()
        self.totals = Totals()
        self.waiting_bytes = 0
        self._pool = ThreadPoolExecutor(1, "otel-rollout-receive")
        self._adoption = adopt(folder)
        self._adopt_at: float = 0.0
        self._seconds_of_taking = 0.0

    async def store(self, body: bytes, encoding: str, *, is_json: bool) -> SpanBatch:
        """Store the spans of a body; when this returns they survive the death of the process.

        Args:
            body: The body as it came.
            encoding: Its content encoding.
            is_json: True for JSON, False for protobuf.

        Raises:
            BodyTooLargeError: It is too large once decompressed.
            TooManySpansError: It has more spans than the limit, or more values.
            ValueError: It can't be read.
            OSError: The disk failed; not all of them are stored.
        """
        return await self._run(lambda: self._store(body, encoding, is_json=is_json))

    async def begin(self) -> None:
        """Learn which spans of the journals that others have left are in frames; before any request."""
        await self._run(lambda: next(self._adoption, None))

    async def work(self) -> None:
        """Adopt journals and write what is due, until it is cancelled."""
        while True:
            has_more = await self._run(self._tick)
            await asyncio.sleep(0 if has_more else TICK_SECONDS)

    async def close(self) -> None:
        """Write the traces whose root has come, and close the folder."""
        await self._run(self._close)
        self._pool.shutdown()

    async def _run(self, function: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)

    def _store(self, body: bytes, encoding: str, *, is_json: bool) -> SpanBatch:
        limits, totals = self.limits, self.totals
        data = decompress(body, encoding, limits.decompressed_bytes)
        if is_json and has_too_many_values(data, limits.values):
            raise TooManySpansError(f"more than {limits.values:,} values")
        batch = SpanBatch(data, is_json=is_json, max_spans=limits.spans)
        try:
            for spans in batch.groups():
                started = monotonic()
                new, doubles = self.folder.take(spans)
                self._seconds_of_taking += monotonic() - started
                totals.spans += new
                totals.doubles += doubles
        except OSError as error:
            totals.trouble = str(error)
            raise
        totals.trouble = ""
        totals.requests += 1
        totals.refused += batch.refused
        return batch

    def _tick(self) -> bool:
        """Do a part of the work that is not a request's; True if there is more."""
        try:
            is_adopting = self._adopt()
            until = monotonic() + MIN_WRITING_SECONDS + WRITING_RATIO * self._seconds_of_taking
            self._seconds_of_taking = 0.0
            return self.folder.write_due(until) or is_adopting
        except OSError as error:
            self.totals.trouble = str(error)
        except Exception:
            internal_error("writing received traces")
        return False

    def _adopt(self) -> bool:
        now = monotonic()
        if now < self._adopt_at:
            return False
        for spans in self._adoption:
            self.totals.adopted += spans
            if monotonic() > now + ADOPT_PART_SECONDS:
                return True
        # At its end, or the next time after an error, it begins anew.
        self._adoption = adopt(self.folder)
        self._adopt_at = now + ADOPT_SECONDS
        return False

    def _close(self) -> None:
        self._adoption.close()
        try:
            self.folder.close(keeps_running=True)
        except OSError as error:
            self.totals.trouble = str(error)
