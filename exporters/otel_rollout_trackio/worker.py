"""The child process of `FolderStore`, which imports trackio and writes into its folder."""

from __future__ import annotations

import errno
import inspect
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final

import orjson

from otel_rollout.export.outcome import Verdict
from otel_rollout.installing import install_line

_IDEMPOTENT_ARGUMENTS: Final = frozenset({"project", "run", "metrics_list", "steps", "timestamps", "log_ids", "run_id"})
_BROKEN_PLACE: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.EEXIST}
)
_BROKEN_DATABASE: Final = ("unable to open database file", "readonly database", "not a database", "malformed")


def prepare() -> None:
    """Import trackio; if that fails, the answer to the first request reports it."""
    with suppress(Exception):
        _storage()


def answer(request: bytes) -> bytes:
    """Answer one request, as JSON: `{"found": …}`, or `{"verdict": …, "reason": …}`; never raises."""
    try:
        asked = orjson.loads(request)
        if asked["method"] == "read":
            return orjson.dumps({"found": _read(asked)})
        _write(asked["conversations"])
        return orjson.dumps({"found": []})
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return orjson.dumps({"verdict": _verdict_of(error).value, "reason": reason})


def _verdict_of(error: Exception) -> Verdict:
    if isinstance(error, (ImportError, _InvalidNameError)):
        return Verdict.CONFIGURATION_ERROR
    if isinstance(error, sqlite3.DatabaseError):
        is_broken = any(reason in str(error) for reason in _BROKEN_DATABASE)
        if is_broken:
            return Verdict.CONFIGURATION_ERROR
        # Locked, or a full disk.
        return Verdict.RETRY if isinstance(error, sqlite3.OperationalError) else Verdict.UNEXPLAINED
    if isinstance(error, OSError):
        return Verdict.CONFIGURATION_ERROR if error.errno in _BROKEN_PLACE else Verdict.RETRY
    return Verdict.UNEXPLAINED


class _InvalidNameError(ValueError):
    """trackio takes no project of this name."""


def _write(conversations: Sequence[dict[str, Any]]) -> None:
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for each in conversations:
        groups.setdefault((each["project"], each["run"], each["run_id"]), []).append(each)
    for (project, run, run_id), group in groups.items():
        _check_name(project)
        if not _is_idempotent():
            _log(project, run, group)
        elif _is_on_network():
            _append_fragment(group)
        else:
            _storage().bulk_log(
                project=project,
                run=run,
                metrics_list=[{each["key"]: each["trace"]} for each in group],
                steps=[each["step"] for each in group],
                timestamps=[each["timestamp"] for each in group],
                log_ids=[each["log_id"] for each in group],
                run_id=run_id,
            )


def _read(asked: dict[str, Any]) -> Any:
    storage = _storage()
    found = storage.get_traces(asked["project"], run_id=asked["run_id"], search=asked["search"], limit=10)
    return [{key: each[key] for key in ("id", "metadata", "spans")} for each in found]


@cache
def _storage() -> Any:
    try:
        from trackio.sqlite_storage import SQLiteStorage
    except ModuleNotFoundError as error:
        if error.name == "trackio":
            raise ImportError(f"trackio isn't installed: {install_line('trackio')}") from error
        raise
    return SQLiteStorage


@cache
def _is_idempotent() -> bool:
    """Return True if this trackio's store takes ids; it is not a part of its public API."""
    bulk_log = getattr(_storage(), "bulk_log", None)
    return bulk_log is not None and _IDEMPOTENT_ARGUMENTS.issubset(inspect.signature(bulk_log).parameters)


@cache
def _is_on_network() -> bool:
    """Return True if trackio keeps from SQLite in this folder, because it is on a network file system."""
    from trackio import utils

    return bool(getattr(utils, "get_storage_mode", lambda: "sqlite")() == "jsonl")


def _check_name(project: str) -> None:
    try:
        getattr(_storage(), "validate_project_name", lambda name: None)(project)
    except ValueError as error:
        raise _InvalidNameError(str(error)) from error


@cache
def _fragment_writer() -> Any:
    from trackio.fragments import FragmentWriter

    return FragmentWriter()


def _append_fragment(group: Sequence[dict[str, Any]]) -> None:
    """Write a file that the dashboard imports when it starts; importing it twice has no effect."""
    from trackio.fragments import metric_record

    records = [metric_record({**each, "metrics": {each["key"]: each["trace"]}}) for each in group]
    _fragment_writer().write_local(records)


def _log(project: str, run: str, group: Sequence[dict[str, Any]]) -> None:
    """Log by trackio's public API, which makes ids of its own: a second write shows a second time."""
    import trackio

    opened = trackio.init(
        project=project, name=run, resume="allow", embed=False, auto_log_gpu=False, auto_log_cpu=False
    )
    try:
        for each in group:
            trace = each["trace"]
            logged = trackio.Trace(trace["messages"], metadata=trace["metadata"], spans=trace["spans"])
            opened.log({each["key"]: logged}, step=each["step"])
    finally:
        # Waits until the run's thread has written everything.
        opened.finish()
