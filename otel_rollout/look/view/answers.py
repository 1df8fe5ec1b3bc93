"""The step that a request selects, and JSON answers of the viewer's server."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, Final, NamedTuple

import orjson
from starlette.responses import Response

from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.text.sanitize import clean, fits_int64

MAX_KEPT_BYTES: Final = 32 * 2**20


class AskedWrongError(Exception):
    """A request that can't be answered, with the status for the reason.

    Args:
        status: 400 or 404.
        message: A sentence with the fault and the remedy.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Answer(NamedTuple):
    """An answer as JSON.

    Args:
        rest: An object with its fields but for the lists.
        lists: The items of each list.
        size: The bytes of all.
    """

    rest: bytes
    lists: dict[str, list[bytes]]
    size: int

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Answer:
        """Return an answer of fields, of which one at least is no list."""
        lists = {name: list(map(json_bytes, value)) for name, value in fields.items() if isinstance(value, list)}
        rest = json_bytes({name: value for name, value in fields.items() if name not in lists})
        return cls(rest, lists, len(rest) + sum(len(item) for items in lists.values() for item in items))

    def whole(self) -> bytes:
        """Return all of it."""
        return self._with(b'"%b":[%b]' % (name.encode(), b",".join(items)) for name, items in self.lists.items())

    def since(self, before: Answer) -> bytes:
        """Return the answer for a page with an earlier one: `changes` has the order and the new items of each list.

        The order is of places: a begin and an end among the earlier items, or a number of new ones.
        """
        changes = (
            b'"%b":%b' % (name.encode(), _changes(before.lists.get(name, []), items))
            for name, items in self.lists.items()
        )
        return self._with([b'"changes":{%b}' % b",".join(changes)])

    def _with(self, fields: Iterable[bytes]) -> bytes:
        return b"%b}" % b",".join((self.rest[:-1], *fields))


def _changes(before: Sequence[bytes], after: Sequence[bytes]) -> bytes:
    places = {item: place for place, item in enumerate(before)}
    order: list[Any] = [0]
    added = []
    for item in after:
        place, last = places.get(item), order[-1]
        if place is None:
            added.append(item)
            order[-1:] = [last + 1] if isinstance(last, int) else [last, 1]
        elif isinstance(last, list) and last[1] == place:
            last[1] += 1
        else:
            order.append([place, place + 1])
    return b'{"order":%b,"added":[%b]}' % (orjson.dumps(order), b",".join(added))


class KeptAnswers:
    """The latest answers, in a bounded number of bytes. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[tuple[str, str], Answer] = OrderedDict()

    def get(self, key: tuple[str, str]) -> Answer | None:
        """Return the answer that is kept for a key."""
        with self._lock:
            return self._kept.get(key)

    def keep(self, key: tuple[str, str], answer: Answer) -> Answer:
        """Keep an answer, and return it."""
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = answer
            while sum(each.size for each in self._kept.values()) > MAX_KEPT_BYTES:
                self._kept.popitem(last=False)
        return answer


def json_bytes(value: Any) -> bytes:
    """Return a value of dataclasses, named tuples, mappings and plain values as JSON."""
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:
        # Lone surrogates, which the detour through Python's JSON would keep, or integers of another program.
        return orjson.dumps(clean(_plain_tree(value)), option=orjson.OPT_NON_STR_KEYS)


def json_answer(value: Any, status: int = 200) -> Response:
    """Return a value as an answer."""
    return Response(json_bytes(value), status, media_type="application/json")


def error_answer(status: int, message: str) -> Response:
    """Return an error as an answer."""
    return json_answer({"error": message}, status)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return value._asdict() if hasattr(value, "_asdict") else list(value)
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def _plain_tree(value: Any) -> Any:
    """Return a value with only dicts, lists and scalars, integers beyond 64 bits as text."""
    if hasattr(value, "__dataclass_fields__"):
        value = {name: getattr(value, name) for name in value.__dataclass_fields__}
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): _plain_tree(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_tree(item) for item in value]
    if isinstance(value, int) and not fits_int64(value):
        return str(value)
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def step_in(text: str) -> int | None:
    """Return the step in an address.

    Raises:
        AskedWrongError: It is neither a number nor `none`.
    """
    try:
        return None if text == "none" else int(text)
    except ValueError:
        raise AskedWrongError(400, f"{text!r} is no step: a number, or `none`") from None


def is_validation(query: Mapping[str, str]) -> bool:
    """Return True if parameters ask for validation."""
    return query.get("validate", "") not in ("", "0", "false")


def asked_step(path: str, query: Mapping[str, str], steps: Sequence[StepSummary]) -> StepSummary:
    """Return the step that a request asks for, of the newest experiment if it names none.

    Args:
        path: The step in the address: a number, or `none`.
        query: `validate`, `experiment`, `run`.
        steps: All steps of the run.

    Raises:
        AskedWrongError: It is no step, or the run has no such step.
    """
    step, validate = step_in(path), is_validation(query)
    experiment, run_id = query.get("experiment"), query.get("run")
    found = [
        each
        for each in steps
        if each.step == step
        and each.validate == validate
        and (experiment is None or str(each.experiment_name or "") == experiment)
        and (run_id is None or each.run_id == run_id)
    ]
    if not found:
        what = f"{'validation of ' if validate else ''}step {path}"
        whose = "" if experiment is None else f" of the experiment {experiment!r}"
        raise AskedWrongError(404, f"there is no {what}{whose} in this run; it may come later")
    return max(found, key=lambda each: each.start_time)
