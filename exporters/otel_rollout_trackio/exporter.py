"""`TrackioSpanExporter`: trajectories as conversations in trackio."""

from __future__ import annotations

import importlib.util
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.counts import ExporterStats
from otel_rollout.errors import ConfigurationError, MissingExtraError
from otel_rollout.export.batch_sender import send_batch
from otel_rollout.export.exporter import OutcomeSpanExporter, ReadBack
from otel_rollout.export.http import RequestFailedError, destination_of, import_requests, shown_url
from otel_rollout.export.lane import RetryPolicy
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.export.recent import RecentDict
from otel_rollout.facts.span_facts import is_late_annotation, span_id_of, trace_id_of
from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.gil import GilYielder
from otel_rollout.guard.log_once import warn_once
from otel_rollout.guard.safe_logger import SafeLogger
from otel_rollout.installing import install_line
from otel_rollout.record.finished_span import readable_size
from otel_rollout_trackio.held_spans import HeldSpans
from otel_rollout_trackio.store import (
    DIR,
    SERVER_URL,
    WRITE_TOKEN,
    FolderStore,
    Server,
    ServerStore,
    Store,
    default_folder,
    parse_server_url,
)
from otel_rollout_trackio.translate import Conversation, is_root, translate

_logger = SafeLogger(__name__)

SPACE_ID: Final = "TRACKIO_SPACE_ID"

MAX_STORED: Final = 16_384
"""The stored trajectories that are remembered, so that a late span of one is not held."""
PART_BYTES: Final = 8 * 2**20
"""The approximate bytes of one write at the shutdown."""

MAX_FILE_NAME: Final = 200
"""A file's name has at most 255 bytes, with the suffix."""

_AT_FAULT: Final = (Verdict.REFUSED, Verdict.TOO_LARGE)


class TrackioSpanExporter(OutcomeSpanExporter):
    """Stores each trajectory as one trackio trace, once its root has ended: trackio can't add to a stored one.

    Until then its spans are held here, and count as queued.

    Args:
        folder: trackio's folder; else `TRACKIO_DIR`, else `trackio` in `HF_HOME`.
        server_url: A trackio server, instead of a folder; else `TRACKIO_SERVER_URL`.
        write_token: The server's write token; else the one in its URL, else `TRACKIO_WRITE_TOKEN`.
        project: The project; else the project given to `init`, else the service's name.
        timeout: Seconds for a request to a server.
    """

    address_setting = str(SERVER_URL)
    variables = (DIR, SERVER_URL, WRITE_TOKEN)
    max_held_bytes = 256 * 2**20
    """Above this, the trajectories without a new span for longest are stored without their root."""
    max_held_seconds = 3600.0
    """A trajectory without a new span for so long is stored without its root."""

    reserved_suffixes = (
        "_system", "_configs", "_traces", "_artifacts", "_artifact_versions", "_artifact_aliases",
        "_run_artifact_links", "_external_run_artifact_links",
    )  # fmt: skip
    """trackio keeps tables of a project in files of its name and one of these."""

    def __init__(
        self,
        *,
        folder: str | os.PathLike[str] | None = None,
        server_url: str | None = None,
        write_token: str | None = None,
        project: str | None = None,
        timeout: float = 30.0,
    ) -> None:
        # A trainer may change its working folder later.
        self.folder = Path(folder or default_folder()).expanduser().absolute()
        url = server_url or (None if folder else SERVER_URL.value())
        self._server: Server | None = None
        self._fault: ConfigurationError | None = None
        if url:
            try:
                self._server = parse_server_url(url, WRITE_TOKEN.value(write_token))
            except ConfigurationError as error:
                self._fault = error
        self._project = project
        self._timeout = timeout
        self._store: Store | None = None
        self._stored: RecentDict[int, None] = RecentDict(MAX_STORED)
        self._is_shut_down = False
        self._held = HeldSpans()
        self._lost_before = 0

    @property
    def destination(self) -> str | None:
        """The server or the folder, with the project if it is given."""
        if self._fault is not None:
            return None
        place = str(self.folder) if self._server is None else destination_of(self._server.url, {})
        return f"{place}, project {self._project}" if self._project else place

    def check(self) -> None:
        """Check the settings without a connection.

        Raises:
            ConfigurationError: The server's URL is invalid, or there is no token for it.
            MissingExtraError: trackio isn't installed.
        """
        if self._fault is not None:
            raise self._fault
        if self._server is not None:
            import_requests()
            return
        if importlib.util.find_spec("trackio") is None:
            raise MissingExtraError(f"trackio isn't installed: {install_line('trackio')}")
        if os.environ.get(SPACE_ID):
            warn_once(
                SPACE_ID,
                "trackio: trajectories are not sent to a Space (%s): they are in %s; `trackio sync` uploads them",
                SPACE_ID,
                self.folder,
            )

    def check_project(self, name: str) -> None:
        """Raise a ConfigurationError for a name that trackio reserves, or that is too long for its files."""
        project = self._project or name
        file_name = "".join(letter for letter in project if letter.isalnum() or letter in "-_")
        is_reserved = file_name.startswith("registry-") or any(
            file_name.endswith(suffix) and file_name != suffix for suffix in self.reserved_suffixes
        )
        if is_reserved or len(file_name.encode("utf-8", "replace")) > MAX_FILE_NAME:
            raise ConfigurationError(
                f"project_name={project[:40]!r}{'…' * (len(project) > 40)}: trackio takes names of at most "
                f"{MAX_FILE_NAME} bytes that don't begin with registry- or end with {', '.join(self.reserved_suffixes)}"
            )

    def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
        """Store the trajectories that `spans` end, and hold the other spans."""
        if self._is_shut_down:
            return Outcome(Verdict.CONFIGURATION_ERROR, "the exporter is shut down")
        ended, running = self._sorted(spans)
        new = [span for batch in running.values() for span in batch]
        overdue = self._held.overdue(new, max_bytes=self.max_held_bytes, max_seconds=self.max_held_seconds)
        outcome = self._store_rootless([trace_id for trace_id in overdue if trace_id not in ended])
        if outcome.verdict is not Verdict.DELIVERED:
            return outcome
        outcome = self._write_ended(ended)
        if outcome.verdict in _AT_FAULT and len(spans) == 1 and any(trace_id in self._held for trace_id in ended):
            # Delivery can halve this batch no further, and the fault may be in a span that is held.
            outcome = self._store_apart(list(ended))
            if outcome.verdict is Verdict.DELIVERED:
                outcome = self._write_ended(ended)
        if outcome.verdict is Verdict.DELIVERED:
            self._held.release(ended)
            self._stored.update(dict.fromkeys(ended))
            self._held.add(new)
        return outcome

    def store_held(self) -> Outcome:
        """Store the held spans without their roots, in one attempt; REFUSED if one was lost since the last call."""
        waiting = self._held.trace_ids()
        while waiting:
            part: list[int] = []
            size = 0
            while waiting and size < PART_BYTES:
                part.append(waiting.pop(0))
                size += sum(map(readable_size, self._held.of_trace(part[-1])))
            outcome = self._store_rootless(part)
            if outcome.verdict is not Verdict.DELIVERED:
                return outcome
        lost = self._new_losses()
        return Outcome(Verdict.REFUSED, f"trackio refused {lost} of the held spans") if lost else DELIVERED

    def read_back(self, spans: Sequence[ReadableSpan]) -> ReadBack:
        """Count the stored ones of `spans`, all of one trace."""
        wanted = translate(spans, project=self._project)
        found = self._opened().read(wanted.project, wanted.run_id, wanted.log_id)
        ids = {span["id"] for each in found for span in each["spans"]}
        place = str(self.folder) if self._server is None else shown_url(self._server.url)
        return ReadBack(
            sum(span_id_of(span) in ids for span in spans),
            f"run {wanted.run} of project {wanted.project} in trackio, {place}",
        )

    def where_to_look(self, project_name: str, experiment_name: str) -> list[str]:
        """Return the commands that show and list trajectories."""
        project = self._project or project_name
        lines = [f"The trajectories are in trackio, project {project}, run {experiment_name}, tab Traces."]
        if self._server is not None:
            return [*lines, f"Open {shown_url(self._server.url)}"]
        prefix = "" if self.folder == _folder_without_variable() else f"{DIR}={self.folder} "
        return [
            *lines,
            "Open the page, or list those of a step, with",
            "",
            f"    {prefix}trackio show --project {project}",
            # Without a limit, it lists 50.
            f"    {prefix}trackio list traces --project {project} --run {experiment_name} --step 1 --limit 10000",
        ]

    def add_counts(self, stats: ExporterStats) -> ExporterStats:
        """Return the counts of its queue, in which held spans are queued ones, and those given up are lost ones."""
        # A copy: the delivery thread may add a reason meanwhile.
        held, lost = self._held.spans, Counter(self._held.lost)
        # The queue counts a batch as delivered just after it is held.
        held = max(0, min(held, stats.delivered - lost.total()))
        counts = replace(
            stats,
            delivered=stats.delivered - held - lost.total(),
            queued=stats.queued + held,
            queued_bytes=stats.queued_bytes + self._held.bytes,
            lost=dict(Counter(stats.lost) + lost),
        )
        return super().add_counts(counts)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return False if it holds spans, whose end no flush can hasten, or lost some since the last flush."""
        return not (self._new_losses() or self._held.spans)

    def shutdown(self) -> None:
        """Store the trajectories that have no root yet, within `export_timeout`, and disconnect; idempotent."""
        if self._is_shut_down:
            return
        self._is_shut_down = True
        deadline = monotonic() + self.export_timeout
        policy, attempt = RetryPolicy(), 1
        while self._held.spans:
            outcome = self.store_held()
            if not self._held.spans:
                break
            delay = policy.delay(attempt, outcome)
            if outcome.verdict is Verdict.CONFIGURATION_ERROR or monotonic() + delay >= deadline:
                _logger.error("trackio lost %d spans of unfinished trajectories: %s", self._held.spans, outcome.reason)
                self._held.lose(self._held.trace_ids(), "shutdown")
                break
            time.sleep(delay)
            attempt += 1
        if self._store is not None:
            self._store.close()

    def after_fork(self) -> None:
        """Forget the parent's spans in a forked child."""
        self._held.forget()
        self._lost_before = 0
        self._stored.clear()

    def _new_losses(self) -> int:
        """Return the number of held spans that were lost since the last call."""
        before, self._lost_before = self._lost_before, self._held.lost.total()
        return self._lost_before - before

    # --- one attempt

    def _sorted(
        self, spans: Iterable[ReadableSpan]
    ) -> tuple[dict[int, list[ReadableSpan]], dict[int, list[ReadableSpan]]]:
        """Return the spans by trace, root last: of trajectories to store now, and of running ones."""
        traces: dict[int, list[ReadableSpan]] = {}
        for span in spans:
            traces.setdefault(trace_id_of(span), []).append(span)
        ended: dict[int, list[ReadableSpan]] = {}
        running: dict[int, list[ReadableSpan]] = {}
        for trace_id, batch in traces.items():
            batch.sort(key=_place)
            is_late = trace_id in self._stored and trace_id not in self._held
            (ended if is_root(batch[-1]) or is_late else running)[trace_id] = batch
        return ended, running

    def _write_ended(self, ended: Mapping[int, Sequence[ReadableSpan]]) -> Outcome:
        return self._write([*self._held.of_trace(trace_id), *batch] for trace_id, batch in ended.items())

    def _store_rootless(self, trace_ids: Sequence[int]) -> Outcome:
        """Store the held spans of trajectories without their roots."""
        outcome = self._write(self._held.of_trace(trace_id) for trace_id in trace_ids)
        if outcome.verdict in _AT_FAULT:
            return self._store_apart(trace_ids)
        if outcome.verdict is Verdict.DELIVERED:
            self._held.release(trace_ids)
        return outcome

    def _store_apart(self, trace_ids: Sequence[int]) -> Outcome:
        """Store held spans in parts, and count those as lost that trackio refuses: nothing would get past them."""
        for trace_id in trace_ids:
            held, last = self._held.of_trace(trace_id), [DELIVERED]
            report = send_batch(
                lambda spans: self._write([spans]),
                held,
                wait=lambda _, outcome: outcome.verdict in _AT_FAULT,
                on_trouble=last.append,
            )
            self._held.release([trace_id])
            if report.lost:
                self._held.lost.update(report.lost)
                _logger.error("trackio lost %d held spans of a trajectory: %s", report.lost.total(), last[-1].reason)
            if report.unsent:
                self._held.add(report.unsent)
                return last[-1]
        return DELIVERED

    def _write(self, parts: Iterable[Sequence[ReadableSpan]]) -> Outcome:
        conversations: list[Conversation] = []
        yielder = GilYielder()
        try:
            for part in parts:
                # An annotation after the root's end is a row of its own, also if a replay has both together.
                own = [span for span in part if not is_late_annotation(span)]
                late = [[span] for span in part if is_late_annotation(span)]
                conversations += [translate(each, project=self._project) for each in (own, *late) if each]
                yielder.worked(sum(map(readable_size, part)))
            if conversations:
                self._opened().write(conversations)
        except RequestFailedError as error:
            return error.outcome
        except Exception as error:
            # Halving the batch finds the span at fault.
            warn_once(f"trackio {type(error).__name__}", "a span can't be sent to trackio", exc_info=error)
            return Outcome(Verdict.REFUSED, f"{type(error).__name__}: {error}")
        return DELIVERED

    def _opened(self) -> Store:
        if self._fault is not None:
            raise RequestFailedError(Outcome(Verdict.CONFIGURATION_ERROR, str(self._fault)))
        if self._store is None:
            self._store = FolderStore(self.folder) if self._server is None else ServerStore(self._server, self._timeout)
        return self._store


def _place(span: ReadableSpan) -> int:
    """Return a span's place in its trajectory: the root goes last, also after a span that another process parented."""
    return 2 if span.parent is None else int(is_root(span))


def _folder_without_variable() -> Path:
    """Return the folder that trackio's command takes in a shell of its own."""
    return Path("~/.cache/huggingface/trackio").expanduser()
