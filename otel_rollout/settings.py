"""The table of settings: the argument of `init`, else the environment variable, else the default."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict

from otel_rollout.errors import ConfigurationError
from otel_rollout.guard.safe_logger import SafeLogger
from otel_rollout.text.near_miss import did_you_mean
from otel_rollout.text.pattern_check import compile_pattern

BUILT_IN: Final = "built-in"
"""Stands for the built-in keys or patterns in a setting."""

_logger = SafeLogger()

OURS: Final = "OTEL_ROLLOUT_"
"""The prefix of our variables: a wrong value raises. One in a variable of OpenTelemetry is a warning."""


class Found(NamedTuple):
    """A value by the environment.

    Args:
        value: The value.
        variable: The variable that it comes from; empty for the default.
        ignored: A line on each variable that is ignored.
    """

    value: Any
    variable: str
    ignored: list[str]


class Setting(NamedTuple):
    """One row of the table, or of an exporter's.

    Args:
        variable: Its environment variable.
        read: Converts the variable's text or an argument; raises ValueError with a description of valid values.
        default: The default.
        meaning: Its description, in one line.
        name: The argument of `init` or of the exporter, if there is one.
        instead: The variable that counts if `variable` isn't set.
    """

    variable: str
    read: Callable[[Any], Any]
    default: Any
    meaning: str
    name: str = ""
    instead: str = ""

    def __str__(self) -> str:
        """Return the variable, for messages."""
        return self.variable

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables, of which the first that is set counts."""
        return (self.variable, self.instead) if self.instead else (self.variable,)

    def find(self, environ: Mapping[str, str] | None = None, *, is_strict: bool = True) -> Found:
        """Return the value by the environment.

        A wrong value is ignored in a variable of OpenTelemetry or of a backend, as the SDK does.

        Args:
            environ: The environment; the process's own if None.
            is_strict: Raise for a wrong value in a variable of ours; if not, ignore it too.

        Raises:
            ConfigurationError: A variable of ours can't work.
        """
        environ = os.environ if environ is None else environ
        ignored: list[str] = []
        for variable in self.variables:
            text = environ.get(variable, "")
            if not text.strip():
                continue
            try:
                return Found(self.read(text), variable, ignored)
            except ValueError as error:
                if is_strict and variable.startswith(OURS):
                    raise ConfigurationError(f"{variable}={text!r}: this should be {error}") from None
                ignored.append(f"{variable}={text!r} is ignored: this should be {error}")
        return Found(self.default, "", ignored)

    def value(self, argument: Any = None, environ: Mapping[str, str] | None = None, *, is_strict: bool = False) -> Any:
        """Return the value of an argument that isn't None, else that by the environment; warn of ignored variables.

        The constructor of an exporter never raises for a variable: `init` does before, and so this isn't strict.

        Raises:
            ConfigurationError: The argument can't work.
        """
        if argument is not None:
            try:
                return self.read(argument)
            except ValueError as error:
                raise ConfigurationError(f"{self.name}={argument!r}: this should be {error}") from None
        found = self.find(environ, is_strict=is_strict)
        for text in found.ignored:
            _logger.warning(text)
        return found.value


_UNITS: Final = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}


def read_bytes(value: Any) -> int:
    """Return a size in bytes: a number, or a text such as `256MiB`.

    Raises:
        ValueError: It isn't a positive size.
    """
    text = str(value).strip().lower()
    number = text.rstrip("bikmg ")
    unit = text[len(number) :].strip()
    try:
        size = int(float(number) * _UNITS[unit])
    except (KeyError, ValueError, OverflowError):
        size = 0
    if size <= 0:
        raise ValueError("a positive size in bytes, such as 1048576 or 256MiB")
    return size


def _number(kind: Callable[[Any], float], least: float, right: str) -> Callable[[Any], Any]:
    def read(value: Any) -> float:
        try:
            number = kind(value)
        except (TypeError, ValueError, OverflowError):
            number = -1
        if not least <= number < float("inf"):
            raise ValueError(right)
        return number

    return read


_read_count: Final = _number(int, 1, "a positive whole number")
_read_samples: Final = _number(int, 0, "a whole number, 0 or more")
_read_milliseconds: Final = _number(float, 0, "a number of milliseconds, 0 or more")
read_seconds: Final = _number(float, 1e-9, "a positive number of seconds")


def one_of(*names: str) -> Callable[[Any], str]:
    """Return a reader of one of some names, in any case."""

    def read(value: Any) -> str:
        if (name := str(value).strip().lower()) in names:
            return name
        raise ValueError(" or ".join(names))

    return read


def read_bool(value: Any) -> bool:
    """Return the value of a flag.

    Raises:
        ValueError: It is neither true nor false.
    """
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("true", "1", "yes", "on"):
        return True
    if text in ("false", "0", "no", "off"):
        return False
    raise ValueError("true or false")


def _read_keys(value: Any) -> tuple[str, ...]:
    given = [text.strip() for text in _texts(value.split(",") if isinstance(value, str) else value)]
    return _beside_built_in(given, "names separated by commas, or none")


def _read_patterns(value: Any) -> tuple[str, ...]:
    given = _texts(value.split() or [""] if isinstance(value, str) else value)
    patterns = _beside_built_in(given, "regular expressions separated by spaces, or none")
    for pattern in patterns:
        if pattern != BUILT_IN:
            compile_pattern(pattern)
    return patterns


def _texts(value: Any) -> list[str]:
    try:
        return [str(text) for text in value]
    except TypeError:
        return [""]


def _beside_built_in(given: list[str], right: str) -> tuple[str, ...]:
    """Return the given texts after the built-in ones, which `none` leaves out.

    Raises:
        ValueError: All texts are empty: a mistake, which must not switch redaction off.
    """
    is_alone = any(text.lower() == "none" for text in given)
    added = sorted({text for text in given if text and text.lower() != "none"} - {BUILT_IN})
    if given and not any(given):
        raise ValueError(right)
    return (*([] if is_alone or not given else [BUILT_IN]), *added)


def read_text(value: Any) -> str:
    """Return a text without whitespace around it.

    Raises:
        ValueError: Nothing else is in it.
    """
    text = str(value).strip()
    if not text:
        raise ValueError("a non-empty string")
    return text


def _read_folder(value: Any) -> str:
    return str(Path(read_text(value)).expanduser().absolute())


def _setting(variable: str, read: Callable[[Any], Any], default: Any, meaning: str) -> Any:
    return field(metadata={"row": Setting(variable, read, default, meaning)})


@dataclass(frozen=True)
class Settings:
    """The value of every setting; each field is a row of the table and an argument of `init`."""

    token2text: bool = _setting(
        "OTEL_ROLLOUT_TOKEN2TEXT",
        read_bool,
        False,
        "decode `prompt_ids`, `response_ids` and `token_ids` next to the ids, on the delivery thread",
    )
    max_samples_per_step_per_worker: int | None = _setting(
        "OTEL_ROLLOUT_MAX_SAMPLES_PER_STEP_PER_WORKER",
        _read_samples,
        None,
        "the number of samples per step that `select_samples` picks in each worker; unset: all",
    )
    run_id: str | None = _setting(
        "OTEL_ROLLOUT_RUN_ID",
        read_text,
        None,
        "the run's id, on every span and in the hash of `rollout_sample_ratio`; unset: one id per process",
    )
    max_queue_bytes: int = _setting(
        "OTEL_ROLLOUT_MAX_QUEUE_BYTES", read_bytes, 256 * 2**20, "the most bytes in each exporter's queue"
    )
    max_queue_spans: int | None = _setting(
        "OTEL_BSP_MAX_QUEUE_SIZE",
        _read_count,
        None,
        "the most spans in each exporter's queue; unset: only the bound in bytes",
    )
    spool: str | None = _setting(
        "OTEL_ROLLOUT_SPOOL",
        _read_folder,
        None,
        "a folder for spans that a backend does not take in time, delivered later or by `otel-rollout replay`; unset: "
        "spans beyond the queue's bounds, and those left at the end, are dropped and counted",
    )
    max_spool_bytes: int = _setting(
        "OTEL_ROLLOUT_MAX_SPOOL_BYTES",
        read_bytes,
        10 * 2**30,
        "the most bytes on disk of each exporter's spool, in each process",
    )
    max_batch_bytes: int = _setting(
        "OTEL_ROLLOUT_MAX_BATCH_BYTES", read_bytes, 4 * 2**20, "the most bytes of a batch; a larger span goes alone"
    )
    max_batch_spans: int = _setting("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", _read_count, 512, "the most spans of a batch")
    schedule_delay_ms: float = _setting(
        "OTEL_BSP_SCHEDULE_DELAY",
        _read_milliseconds,
        1000.0,
        "the longest wait of a span for a full batch, in milliseconds",
    )
    shutdown_timeout_ms: float | None = _setting(
        "OTEL_ROLLOUT_SHUTDOWN_TIMEOUT_MS",
        _read_milliseconds,
        None,
        "the longest wait of `flush`, and of `shutdown` at the end of the process, for queued spans, in milliseconds; "
        "unset: 30000, and at the end as long before that as a new database is being made, 300000 in all",
    )
    max_payload_bytes: int = _setting(
        "OTEL_ROLLOUT_MAX_PAYLOAD_BYTES",
        read_bytes,
        2**20,
        "the most bytes of an input or output; longer ones are cut inside the JSON, which stays valid",
    )
    chat_messages: bool = _setting(
        "OTEL_ROLLOUT_CHAT_MESSAGES",
        read_bool,
        True,
        "write the messages of LLM ops and of the final conversation as `gen_ai.input.messages` and "
        "`gen_ai.output.messages`, by which backends show a chat",
    )
    redact_keys: tuple[str, ...] = _setting(
        "OTEL_ROLLOUT_REDACT_KEYS",
        _read_keys,
        (BUILT_IN,),
        "more keys whose text values are redacted, separated by commas; `-name` exempts a key, `none` drops the "
        "built-in ones; see [Redaction](redaction.md)",
    )
    redact_patterns: tuple[str, ...] = _setting(
        "OTEL_ROLLOUT_REDACT_PATTERNS",
        _read_patterns,
        (BUILT_IN,),
        "regular expressions for more secrets, separated by spaces; `none` drops the built-in ones",
    )
    set_global: bool = _setting(
        "OTEL_ROLLOUT_SET_GLOBAL",
        read_bool,
        False,
        "make our provider the global one, so that other instrumentations' spans arrive with ours",
    )


class InitSettings(TypedDict, total=False):
    """The arguments of `init` that are fields of `Settings`, with the types that their readers take."""

    run_id: str | None
    max_queue_bytes: int | str | None
    max_queue_spans: int | None
    spool: str | Path | None
    max_spool_bytes: int | str | None
    max_batch_bytes: int | str | None
    max_batch_spans: int | None
    schedule_delay_ms: float | None
    shutdown_timeout_ms: float | None
    max_payload_bytes: int | str | None
    chat_messages: bool | None
    redact_keys: str | Iterable[str] | None
    redact_patterns: str | Iterable[str] | None
    set_global: bool | None


SETTINGS: Final[tuple[Setting, ...]] = tuple(one.metadata["row"]._replace(name=one.name) for one in fields(Settings))
"""The rows of the table."""

_SAMPLING: Final = (
    "; a share of the prompts is traced with OTEL_TRACES_SAMPLER=rollout_sample_ratio and OTEL_TRACES_SAMPLER_ARG=0.1, "
    "a number of them with max_samples_per_step_per_worker"
)

STANDARD_VARIABLES: Final[Mapping[str, str]] = {
    "OTEL_TRACES_EXPORTER": "the exporters, separated by commas, if `init` has no `backend`; `none` is off",
    "OTEL_BSP_EXPORT_TIMEOUT": "ignored, as by the SDK: `OTEL_EXPORTER_OTLP_TIMEOUT` is the limit of one request",
    "OTEL_SERVICE_NAME": "the resource's `service.name`; default: the project name",
    "OTEL_RESOURCE_ATTRIBUTES": "more attributes of the resource, `key=value,key=value`",
    "OTEL_SDK_DISABLED": "`true` turns tracing off, whatever else is set",
    "OTEL_TRACES_SAMPLER": "the sampler, which decides at each trajectory's root; `rollout_sample_ratio` is ours",
    "OTEL_TRACES_SAMPLER_ARG": "the sampler's argument, such as a ratio",
    "OTEL_ATTRIBUTE_COUNT_LIMIT": "the most attributes of a span, event or link, default 128; the last are dropped",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "the same, only for spans; tags and payload count, and stay before the others",
    "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT": "the same, only for events",
    "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT": "the same, only for links",
    "OTEL_SPAN_EVENT_COUNT_LIMIT": "the most events of a span, default 128",
    "OTEL_SPAN_LINK_COUNT_LIMIT": "the most links of a span, default 128",
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "the most characters of an attribute; JSON is cut inside, to so many bytes",
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "the same, only for attributes of spans, input and output among them",
}
"""OpenTelemetry's variables without a row in the table."""

OTLP_PROTOCOL: Final = Setting(
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    one_of("http/protobuf", "grpc"),
    "http/protobuf",
    "`http/protobuf` or `grpc`",
    instead="OTEL_EXPORTER_OTLP_PROTOCOL",
)
"""The protocol of the backend `otlp`, which decides on its exporter."""

CHECKED_VARIABLES: Final = (
    Setting("OTEL_SDK_DISABLED", one_of("true", "false"), "false", STANDARD_VARIABLES["OTEL_SDK_DISABLED"]),
    Setting("OTEL_BSP_EXPORT_TIMEOUT", _read_milliseconds, None, STANDARD_VARIABLES["OTEL_BSP_EXPORT_TIMEOUT"]),
)
"""Variables of OpenTelemetry that others read, or nobody: only a wrong value is reported."""

VARIABLES: Final = frozenset(
    {
        *STANDARD_VARIABLES,
        "OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS",
        *(variable for row in (*SETTINGS, OTLP_PROTOCOL) for variable in row.variables),
    }
)
"""Every variable that is read here; exporters have more."""


def is_disabled() -> bool:
    """Return True if `OTEL_SDK_DISABLED` switches tracing off."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def resolve_settings(
    arguments: Mapping[str, Any],
    environ: Mapping[str, str] | None = None,
    *,
    also_known: Sequence[str] = (),
) -> Settings:
    """Return each setting's value: the argument, else the first of its variables that is set, else the default.

    Args:
        arguments: Values by setting name; None counts as not given.
        environ: The environment; the process's own if None.
        also_known: Names of other arguments, which a misspelt one may stand for.

    Raises:
        ConfigurationError: An argument or a variable of ours can't work; the message names it and the valid values.
    """
    values = {row.name: row.value(arguments.get(row.name), environ, is_strict=True) for row in SETTINGS}
    unknown = set(arguments) - {setting.name for setting in SETTINGS}
    if unknown:
        known = [setting.name for setting in SETTINGS]
        hint = did_you_mean(min(unknown), [*known, *also_known])
        if not hint:
            hint = _SAMPLING if any("sampl" in name for name in unknown) else f"; there are {', '.join(known)}"
        raise ConfigurationError(f"{', '.join(sorted(unknown))}: there is no such setting{hint}")
    return Settings(**values)
