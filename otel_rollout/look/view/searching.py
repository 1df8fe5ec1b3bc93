"""A search as an answer whose lines come while it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Executor
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from otel_rollout.catalog import Run, Search, SearchHit
from otel_rollout.look.view.answers import AskedWrongError, error_answer, is_validation, json_bytes, step_in

MAX_HITS: Final = 1000
LINES: Final = "application/x-ndjson"


def searching(run: Run, threads: Executor) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint `api/search`.

    Args:
        run: The run.
        threads: A search occupies one of them.
    """

    async def endpoint(request: Request) -> Response:
        try:
            search = _search_of(run, request.query_params)
        except AskedWrongError as error:
            return error_answer(error.status, str(error))
        except ValueError as error:
            return error_answer(400, str(error))
        return StreamingResponse(_lines(search, threads), media_type=LINES, headers={"X-Accel-Buffering": "no"})

    return endpoint


def _search_of(run: Run, query: Mapping[str, str]) -> Search:
    text, within = query.get("q", ""), query.get("in") or "text"
    if not text.strip():
        raise AskedWrongError(400, "nothing is searched for: `q` is the text")
    if within not in ("text", "tool", "failed", "error"):
        raise AskedWrongError(400, f"{within!r} can't be searched: `in` is text, tool, failed or error")
    has_step = bool(query.get("step"))
    searched = run.read(
        step={step_in(query["step"])} if has_step else None,
        # A step's page is its training or its validation; without a step, both are searched.
        validate=is_validation(query) if has_step or is_validation(query) else None,
        experiment=query.get("experiment"),
        run=query.get("run"),
    )
    return Search(searched, text, within, match_case=query.get("case", "") == "1", limit=MAX_HITS)


async def _lines(search: Search, threads: Executor) -> AsyncIterator[bytes]:
    pending = threads.submit(next, search, None)
    try:
        while True:
            try:
                hit: SearchHit | None = await asyncio.wrap_future(pending)
            except Exception as error:
                yield json_bytes({"error": f"the search failed: {error}"}) + b"\n"
                return
            if hit is None:
                break
            yield json_bytes({"hit": {**hit.tags, **hit.match._asdict()}}) + b"\n"
            pending = threads.submit(next, search, None)
        counts = {"searched_bytes": search.searched_bytes, "hits": search.hits, "unreadable": search.unreadable}
        yield json_bytes({"done": True, "is_cut": search.is_cut, **counts}) + b"\n"
    finally:
        # A page that has gone ends the search once its thread looks up: until then it can't be closed.
        pending.cancel()
        pending.add_done_callback(lambda _: search.close())
