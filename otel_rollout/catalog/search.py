"""Searches the payload of trajectories: compares requests as bytes, and decodes only candidates."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, Final, NamedTuple

from otel_rollout.catalog.text_match import Match, TextMatcher
from otel_rollout.errors import UnreadableTraceError
from otel_rollout.folder.reader import RecordedTrajectory

BATCH: Final = 32
"""The trajectories that a thread searches in one go."""
MAX_THREADS: Final = 8
_TAGS: Final = (
    *("trace_id", "step", "validate", "experiment_name", "run_id"),
    *("sample_index", "rollout_n", "reward", "status"),
)


class SearchHit(NamedTuple):
    """A trajectory that has the text.

    Args:
        tags: Its id, step, experiment, run, prompt, rollout, reward and status, by name.
        match: The first place of the text.
    """

    tags: Mapping[str, Any]
    match: Match


class Search:
    """A search that is under way: an iterator of its hits, in the order of the trajectories.

    Args:
        trajectories: The trajectories to search.
        text: The text, as a reader sees it.
        within: `text` is every message, argument and result; `tool` the names of tools; `failed` the names in calls
            that failed; `error` the messages, types and tracebacks of spans that failed.
        match_case: Distinguish upper from lower case.
        limit: Stop after this number of hits.

    Raises:
        ValueError: The text is empty, or `within` has another value.
    """

    def __init__(
        self,
        trajectories: Iterable[RecordedTrajectory],
        text: str,
        within: str = "text",
        *,
        match_case: bool = False,
        limit: int = 1000,
    ) -> None:
        self.searched_bytes = 0
        """The size of what has been searched, as OTLP."""
        self.hits = 0
        """The number of hits so far."""
        self.is_cut = False
        """True once there are more hits than the limit."""
        self.unreadable = 0
        """The number of trajectories that could not be read."""
        self._limit = limit
        self._matcher = TextMatcher(text, within, match_case=match_case)
        self._hits = self._run(iter(trajectories))

    def __iter__(self) -> Iterator[SearchHit]:
        return self

    def __next__(self) -> SearchHit:
        return next(self._hits)

    def close(self) -> None:
        """Stop searching."""
        self._hits.close()

    def _run(self, trajectories: Iterator[RecordedTrajectory]) -> Generator[SearchHit, None, None]:
        threads = min(os.cpu_count() or 1, MAX_THREADS)
        waiting: deque[Future[tuple[list[SearchHit], int, int]]] = deque()
        # Decompression and comparison leave the interpreter to other threads.
        pool = ThreadPoolExecutor(threads, thread_name_prefix="otel-rollout-search")
        try:
            while True:
                while len(waiting) < 4 * threads and (batch := list(islice(trajectories, BATCH))):
                    waiting.append(pool.submit(_search, batch, self._matcher))
                if not waiting:
                    return
                hits, searched_bytes, unreadable = waiting.popleft().result()
                self.searched_bytes += searched_bytes
                self.unreadable += unreadable
                for hit in hits:
                    if self.hits >= self._limit:
                        self.is_cut = True
                        return
                    self.hits += 1
                    yield hit
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _search(batch: Sequence[RecordedTrajectory], matcher: TextMatcher) -> tuple[list[SearchHit], int, int]:
    """Return the hits, the bytes that were searched, and the number of trajectories that can't be read."""
    hits = []
    searched = unreadable = 0
    for each in batch:
        try:
            for file, row in each.parts:
                request = file.read_request(row)
                searched += len(request)
                if (match := matcher.find(request, each.trace_id)) is not None:
                    hits.append(SearchHit({name: getattr(each, name) for name in _TAGS}, match))
                    break
        except (OSError, ValueError, UnreadableTraceError):
            unreadable += 1
    return hits, searched, unreadable
