"""Searches the payload of trajectories: compares requests as bytes, and decodes only candidates.

A text is found also if its characters are escaped once or twice in the request.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout import semconv
from otel_rollout.errors import UnreadableTraceError
from otel_rollout.facts.span_facts import kind_of
from otel_rollout.facts.span_values import error_type_of, text_of
from otel_rollout.facts.trace_tree import error_of
from otel_rollout.folder.reader import RecordedTrajectory
from otel_rollout.messages import parse_json
from otel_rollout.otlp import traces_of

BATCH: Final = 32
"""The trajectories that a thread searches in one go."""
MAX_THREADS: Final = 8
_TAGS: Final = (
    *("trace_id", "step", "validate", "experiment_name", "run_id"),
    *("sample_index", "rollout_n", "reward", "status"),
)
EXCERPT_BEFORE: Final = 60
EXCERPT_AFTER: Final = 140
MAX_DEPTH: Final = 4
"""The depth of JSON in JSON: a call's arguments in a message, messages in an attribute."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9 _.,;:!?()*+=#$%@^|~`{}\[\]-]+")
"""Characters that no encoder escapes; some do with `/`, `<`, `>`, `&` and `'`."""
_STRUCTURE: Final = re.compile(r"""[{\[,]\s*"|"\s*[:,\]}]""")
"""JSON itself, not the texts in it."""
_NO_TEXT: Final = frozenset({"type", "role", "id"})
"""Names in messages whose values nobody has said."""
_SKIPPED: Final = frozenset(
    {
        *semconv.TAGS,
        semconv.SPAN_KIND,
        semconv.OPERATION_NAME,
        semconv.INPUT_MIME_TYPE,
        semconv.OUTPUT_MIME_TYPE,
        semconv.CONVERSATION_ID,
        semconv.METADATA,
        semconv.ERROR_TYPE,  # It precedes the error's message.
    }
)


class Match(NamedTuple):
    """The first place of a text in a trajectory.

    Args:
        where: The span's name.
        span_id: The span.
        excerpt: The text around it, on one line.
        start: Its place in the excerpt.
        end: Its end in the excerpt.
    """

    where: str
    span_id: str
    excerpt: str
    start: int
    end: int


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


class TextMatcher:
    """Finds a text in OTLP requests.

    Args:
        text: The text.
        within: `text`, `tool` or `error`.
        match_case: Distinguish upper from lower case.

    Raises:
        ValueError: The text is empty, or `within` has another value.
    """

    def __init__(self, text: str, within: str = "text", *, match_case: bool = False) -> None:
        if not text:
            raise ValueError("a search needs a text")
        if within not in _TEXTS:
            raise ValueError(f"{within!r} is not one of {', '.join(_TEXTS)}")
        self._match_case = match_case
        self._fragments = fragments_of(text, match_case=match_case)
        self._pattern = re.compile(re.escape(text), 0 if match_case else re.IGNORECASE)
        self._is_structured = _STRUCTURE.search(text) is not None
        self._texts_of = _TEXTS[within]
        self._is_of_calls = within in ("tool", "failed")

    def find(self, request: bytes, trace_id: str) -> Match | None:
        """Return the first place of the text in the spans of a trace.

        Raises:
            ValueError: It is no OTLP request.
        """
        if not self._may_have(request):
            return None
        for span in traces_of(request).get(bytes.fromhex(trace_id), ()):
            if self._may_have(span.data) and (match := self._find_in_span(span)) is not None:
                return match
        return None

    def _may_have(self, data: bytes) -> bool:
        """Return False if the text isn't in a request, or in a span."""
        compared = data if self._match_case else data.lower()
        return not self._fragments or any(fragment in compared for fragment in self._fragments)

    def _find_in_span(self, span: ReadableSpan) -> Match | None:
        for kind, text in self._texts_of(span):
            if (found := self._find_in_text(text, MAX_DEPTH)) is None:
                continue
            excerpt, start, end = found
            # The middle of a message or of a traceback doesn't have its class.
            lead = f"{kind}: " if kind and kind.lower() not in excerpt.lower() else ""
            excerpt = f"{lead}{excerpt}{_call_text(span) if self._is_of_calls else ''}"
            span_id = "" if span.context is None else f"{span.context.span_id:016x}"
            return Match(span.name, span_id, excerpt, len(lead) + start, len(lead) + end)
        return None

    def _find_in_text(self, text: str, depth: int) -> tuple[str, int, int] | None:
        """Return the excerpt and the match's place in it; if the text is JSON, its strings are searched."""
        message = parse_json(text) if depth and text[:1] in ("{", "[", '"') else None
        if message is None:
            found = self._pattern.search(text)
            return _excerpt(text, *found.span()) if found else None
        for inner in _leaves(message):
            if (excerpt := self._find_in_text(inner, depth - 1)) is not None:
                return excerpt
        # JSON that somebody has said, as the arguments of a call, is a text too.
        is_text = self._is_structured or depth < MAX_DEPTH
        if is_text and (found := self._pattern.search(text)):
            return _excerpt(text, *found.span())
        return None


def fragments_of(text: str, *, match_case: bool = False) -> tuple[bytes, ...]:
    """Return byte strings, one of which each matching line contains; an empty tuple excludes no line.

    Args:
        text: The text.
        match_case: Distinguish upper from lower case.
    """
    plain = max(_PLAIN.findall(text), key=len, default="")
    if plain:
        return ((plain if match_case else plain.lower()).encode(),)
    # One character: as it is, or escaped.
    letter = next((character for character in text if not character.isascii()), "")
    if not letter or 0xD800 <= ord(letter) < 0xE000:
        return ()
    letters = {letter} if match_case else {letter, letter.lower(), letter.upper(), letter.casefold()}
    return (*(each.encode() for each in sorted(letters)), b"\\u")


def _all_texts(span: ReadableSpan) -> Iterator[tuple[str, str]]:
    """Yield the texts of a span; the text of an error comes with its class name."""
    for key, value in (span.attributes or {}).items():
        if key not in _SKIPPED:
            yield from (("", text) for text in _leaves(value))
    yield from _errors(span)


def _errors(span: ReadableSpan) -> Iterator[tuple[str, str]]:
    """Yield the class name and the text of each error: its class and message, its traceback, the span's status."""
    kind = error_type_of(span).rpartition(".")[2]
    for event in span.events:
        others = dict(event.attributes or {})
        named = [list(_leaves(others.pop(key, None))) for key in (semconv.EXCEPTION_TYPE, semconv.EXCEPTION_MESSAGE)]
        own = "".join(named[0]).rpartition(".")[2] or kind
        yield own, ": ".join(chain(*named))
        yield from ((own, text) for text in _leaves(others))
    for text in (span.status.description, (span.attributes or {}).get(semconv.ERROR_TYPE)):
        yield from ((kind, each) for each in _leaves(text))


def _tools(span: ReadableSpan) -> Iterator[tuple[str, str]]:
    attributes = span.attributes or {}
    if kind_of(attributes) == "TOOL":
        yield "", text_of(attributes.get(semconv.TOOL_NAME)) or span.name


_TEXTS: Final[Mapping[str, Callable[[ReadableSpan], Iterator[tuple[str, str]]]]] = {
    "text": _all_texts,
    "tool": _tools,
    "failed": lambda span: _tools(span) if _has_failed(span) else iter(()),
    "error": lambda span: _errors(span) if _has_failed(span) else iter(()),
}


def _call_text(span: ReadableSpan) -> str:
    """Return a tool call's arguments and error, shortened, for display after its name."""
    arguments = " ".join(_leaves((span.attributes or {}).get(semconv.INPUT_VALUE)))
    error = error_of(span) if _has_failed(span) else ""
    return "".join(f"{mark}{_excerpt(text, 0, 0)[0]}" for mark, text in ((" ", arguments), (" → ", error)) if text)


def _has_failed(span: ReadableSpan) -> bool:
    return span.status.status_code is StatusCode.ERROR


def _leaves(value: Any) -> Iterator[str]:
    """Yield the strings of an attribute's value, or of a message."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            waiting += [value for name, value in reversed(each.items()) if name not in _NO_TEXT]
        elif isinstance(each, (list, tuple)):
            waiting += reversed(each)


def _excerpt(text: str, start: int, end: int) -> tuple[str, int, int]:
    """Return the text around a match on one line, and the match's place in it."""
    first, last = max(0, start - EXCERPT_BEFORE), min(len(text), max(end, start + EXCERPT_AFTER))
    before = ("…" if first else "") + _one_line(text[first:start])
    match = _one_line(text[start : min(end, start + EXCERPT_AFTER)])
    after = _one_line(text[end:last]) + ("…" if last < len(text) else "")
    return f"{before}{match}{after}", len(before), len(before) + len(match)


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)
