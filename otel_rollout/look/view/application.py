"""The viewer's web application: its routes, and the threads that answer them."""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from otel_rollout.errors import NoTracesError, RolloutTraceError
from otel_rollout.look.view import run_state
from otel_rollout.look.view.access import Access
from otel_rollout.look.view.answers import Answer, AskedWrongError, KeptAnswers, error_answer, json_bytes
from otel_rollout.look.view.endpoints import Endpoints, Parameters
from otel_rollout.look.view.run_state import RunState
from otel_rollout.look.view.searching import searching

STATIC: Final = Path(__file__).parent / "static"
THREADS: Final = 16
SECONDS_TO_KEEP_ALIVE: Final = 15.0
"""A proxy ends a connection that is silent for a minute."""

# The system's own table may differ, and a browser runs no module of another type.
mimetypes.add_type("text/javascript", ".js")
mimetypes.add_type("text/css", ".css")


def make_application(state: RunState, token: str, hosts: Iterable[str] = ()) -> Access:
    """Return the application.

    Args:
        state: The run.
        token: The token that requests for data need.
        hosts: See `Access`.
    """
    endpoints = Endpoints(state)
    # Unlike the framework's own, it doesn't keep a request that is given up until its thread is done.
    threads = ThreadPoolExecutor(THREADS, "otel-rollout-view")
    answering = partial(_answering, state, threads, KeptAnswers())
    whole, of_step = (lambda path, query: state.version()), endpoints.mark_of_step
    routes = [
        Route("/api/run", answering(endpoints.run)),
        Route("/api/step/{step}", answering(endpoints.step, of_step)),
        Route("/api/step/{step}/timeline", answering(endpoints.timeline, of_step)),
        Route("/api/step/{step}/group", answering(endpoints.group, whole)),
        Route("/api/trajectory/{trace_id}", answering(endpoints.trajectory, whole)),
        Route("/api/trajectory/{trace_id}/span/{span_id}", answering(endpoints.span)),
        Route("/api/search", searching(state.run, threads)),
        Route("/api/findings", answering(endpoints.findings, whole)),
        Route("/api/prompt", answering(endpoints.prompt, whole)),
        Route("/api/compare", answering(endpoints.compare, whole)),
        Route("/api/live", answering(endpoints.live)),
        Route("/api/open", answering(endpoints.open)),
        # An executor of its own: requests that wait for a large folder would stop it.
        Route("/api/changes", _changes(state, ThreadPoolExecutor(1, "otel-rollout-changes"))),
        Route("/api/{rest:path}", _nothing),
        Mount("/", StaticFiles(directory=STATIC, html=True, check_dir=False)),
    ]
    application = Starlette(routes=routes, exception_handlers={HTTPException: _refuse, Exception: _fail})
    return Access(application, token, hosts)


def _answering(
    state: RunState,
    threads: Executor,
    kept: KeptAnswers,
    answer: Callable[[Parameters, Parameters], Any],
    mark_of: Callable[[Parameters, Parameters], str] | None = None,
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that answers in a thread of its own.

    Args:
        state: The run.
        threads: The threads.
        kept: Keeps the answers that have a mark.
        answer: Makes the answer.
        mark_of: Returns the mark of an answer, which is the same as long as the answer is; None if it has none. A page
            that has this answer already gets only the version of the folders, and one with an earlier answer that is
            kept only what has changed since.
    """

    def content_of(path: Parameters, query: Mapping[str, str], place: str) -> bytes:
        if mark_of is None:
            return json_bytes(answer(path, query))
        mark = mark_of(path, query)
        known = query.get("known", "")
        if known == mark:
            return json_bytes({"version": state.version(), "mark": mark})
        now = kept.get((place, mark))
        if now is None:
            now = Answer.of({**answer(path, query), "mark": mark})
        before = kept.get((place, known))
        kept.keep((place, mark), now)
        return now.whole() if before is None else now.since(before)

    def answer_as_json(request: Request) -> Response:
        try:
            with state.run.one_look():
                place = str(request.url.remove_query_params("known"))
                content = content_of(request.path_params, request.query_params, place)
        except AskedWrongError as error:
            return error_answer(error.status, str(error))
        except NoTracesError as error:
            return error_answer(404, f"{error}; it may come later")
        except (RolloutTraceError, OSError) as error:
            return error_answer(500, str(error))
        return Response(content, media_type="application/json")

    async def endpoint(request: Request) -> Response:
        return await asyncio.get_running_loop().run_in_executor(threads, answer_as_json, request)

    return endpoint


def _changes(state: RunState, threads: Executor) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint that notifies a page of changes, at most once a second."""

    async def tell(known: str) -> AsyncIterator[bytes]:
        told: Any = (known, None)
        silent = 0.0
        # Send headers immediately, so that the browser counts as connected.
        yield b": connected\n\n"
        while True:
            version = await asyncio.get_running_loop().run_in_executor(threads, state.version)
            now = version, state.progress
            if now != told:
                told = now
                silent = 0.0
                yield b"data: %b\n\n" % json_bytes({"version": version, "progress": now[1]})
            elif silent >= SECONDS_TO_KEEP_ALIVE:
                silent = 0.0
                yield b": no change\n\n"
            await asyncio.sleep(run_state.SECONDS_BETWEEN_LOOKS)
            silent += run_state.SECONDS_BETWEEN_LOOKS

    async def endpoint(request: Request) -> Response:
        # A proxy may hold back what it could send.
        headers = {"X-Accel-Buffering": "no"}
        known = request.query_params.get("version", "")
        return StreamingResponse(tell(known), media_type="text/event-stream", headers=headers)

    return endpoint


async def _nothing(request: Request) -> Response:
    return error_answer(404, f"there is nothing at {request.url.path}")


def _refuse(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return error_answer(status, f"there is nothing at {request.url.path}" if status == 404 else str(error))


def _fail(request: Request, error: Exception) -> Response:
    return error_answer(500, f"this can't be answered: {type(error).__name__}: {error}")
