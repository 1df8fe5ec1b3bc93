"""Find exporters by name: `otlp`, `console`, and those in OpenTelemetry's entry point group."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, metadata
from typing import Any, Final

from opentelemetry.environment_variables import OTEL_TRACES_EXPORTER
from opentelemetry.sdk.trace.export import SpanExporter

from otel_rollout.errors import ConfigurationError, MissingExtraError, UnknownExporterError
from otel_rollout.export.exporter import OutcomeSpanExporter, settings_of
from otel_rollout.guard.safe_logger import SafeLogger
from otel_rollout.installing import install_line
from otel_rollout.settings import OTLP_PROTOCOL
from otel_rollout.text.near_miss import closest, did_you_mean

Backend = str | SpanExporter | Sequence["str | SpanExporter"]
"""The type of `init(backend=…)`: a name, names separated by commas, an exporter, or a list of names and exporters."""

_logger = SafeLogger()

DISTRIBUTION: Final = "otel-rollout"
_PACKAGE_PREFIX: Final = "otel_rollout_"
GROUP: Final = "opentelemetry_traces_exporter"

_OTLP_EXPORTERS: Final = {
    "http/protobuf": ("otel_rollout_otlp", "OtlpHttpSpanExporter", None),
    "grpc": ("otel_rollout_otlp", "OtlpGrpcSpanExporter", "grpc"),
}
_OTHER_NAMES: Final = {
    **dict.fromkeys(("wandb", "wb", "weightsandbiases", "weightsbiases"), "weave"),
    **dict.fromkeys(("stdout", "stderr", "print", "terminal", "screen"), "console"),
    **dict.fromkeys(("folder", "dir", "disk", "json", "jsonl"), "file"),
    **dict.fromkeys(("otel", "opentelemetry", "grpc", "http", "httpprotobuf"), "otlp"),
    **dict.fromkeys(("off", "false", "no", "disabled"), "none"),
}
"""Names that exporters are asked for by, besides their own."""
_TAKE_OTLP: Final = {
    **dict.fromkeys(("collector", "otelcol", "otelcollector", "jaeger", "tempo", "signoz"), "http://localhost:4318"),
    "langfuse": "https://cloud.langfuse.com/api/public/otel",
    **dict.fromkeys(("arize", "datadog", "grafana", "honeycomb", "langsmith", "logfire", "opik"), "https://…"),
}
"""Backends without an exporter of their own, with their usual address."""


@dataclass(frozen=True, repr=False)
class Address:
    """The arguments `endpoint` and `headers` of `init`, for the one exporter that takes them.

    Args:
        endpoint: The URL of the receiver.
        headers: Sent with each request.
    """

    endpoint: str | None = None
    headers: Mapping[str, str] | None = None

    def __repr__(self) -> str:
        """Return the endpoint and the headers' names, without secrets."""
        from otel_rollout.export.http import shown_url

        endpoint = shown_url(self.endpoint) if self.endpoint is not None else None
        return f"endpoint {endpoint!r} with headers {sorted(self.headers or ())}"

    def arguments(self) -> dict[str, Any]:
        """Return those that are given, checked.

        Raises:
            ConfigurationError: One has the wrong type.
        """
        if self.endpoint is not None and (not isinstance(self.endpoint, str) or not self.endpoint.strip()):
            raise ConfigurationError(f"endpoint={self.endpoint!r}: this should be a URL such as http://localhost:4318")
        if self.headers is not None and not (
            isinstance(self.headers, Mapping)
            and all(isinstance(part, str) for pair in self.headers.items() for part in pair)
        ):
            # Without the value: it may hold a key.
            raise ConfigurationError("headers: this should be a dict of names and values, both strings")
        given = {"endpoint": self.endpoint, "headers": self.headers}
        return {name: value for name, value in given.items() if value is not None}


def is_backend_named(backend: Backend | None) -> bool:
    """Return True if the argument of `init` or `OTEL_TRACES_EXPORTER` names backends, be it `none`."""
    return backend is not None or bool(os.environ.get(OTEL_TRACES_EXPORTER, "").strip())


def requested_backend(backend: Backend | None) -> list[str | SpanExporter]:
    """Return the list of requested backends; empty if tracing is off.

    Args:
        backend: The argument of `init`; if None, `OTEL_TRACES_EXPORTER` counts.

    Raises:
        ConfigurationError: There is no name, `none` is not the only name, or an entry is neither a name nor an
            exporter.
    """
    origin = "backend"
    if backend is None:
        backend = os.environ.get(OTEL_TRACES_EXPORTER, "")
        origin = OTEL_TRACES_EXPORTER
    entries: Iterable[Any] = [backend] if isinstance(backend, (str, SpanExporter)) else backend
    try:
        entries = list(entries)
    except TypeError:
        raise ConfigurationError(
            f"backend={backend!r}: this should be a name, a SpanExporter, or a list of these"
        ) from None
    asked: list[str | SpanExporter] = []
    has_empty_name = False
    for entry in entries:
        if isinstance(entry, str):
            names = [name.strip() for name in entry.split(",")]
            asked.extend(name for name in names if name)
            has_empty_name = has_empty_name or "" in names
        elif isinstance(entry, SpanExporter):
            asked.append(entry)
        else:
            raise ConfigurationError(f"backend: {entry!r} should be a name or a SpanExporter")
    # Two exporters may be equal, and have no hash.
    unique = list({entry if isinstance(entry, str) else id(entry): entry for entry in asked}.values())
    is_unset = isinstance(backend, str) and not backend.strip() and origin == OTEL_TRACES_EXPORTER
    if not unique and not is_unset:
        raise ConfigurationError(f"{origin}={backend!r} names no exporter; {origin}='none' turns tracing off")
    if has_empty_name and not is_unset:
        _logger.warning("%s=%r: an empty name between commas is ignored", origin, backend)
    if any(isinstance(entry, str) and entry == "none" for entry in unique):
        if len(unique) > 1:
            others = ", ".join(str(entry) for entry in unique if not (isinstance(entry, str) and entry == "none"))
            raise ConfigurationError(
                f"{origin}: 'none' turns tracing off and stands alone; without it there is: {others}"
            )
        return []
    return unique


def backend_names(asked: Iterable[str | SpanExporter]) -> str | None:
    """Return the backends' names separated by commas, as verl has them; None if there are none."""
    return ",".join(entry if isinstance(entry, str) else type(entry).__name__ for entry in asked) or None


def make_exporters(
    asked: Iterable[str | SpanExporter], address: Address | None = None
) -> list[tuple[str, SpanExporter]]:
    """Return the exporters with their names in logs and statistics.

    Args:
        asked: Names and exporters.
        address: The endpoint and headers for the one exporter that takes them.

    Raises:
        UnknownExporterError: No exporter has this name.
        MissingExtraError: The exporter needs a package that isn't installed.
        ConfigurationError: The exporter can't work as it is configured.
    """
    asked = list(asked)
    given = address.arguments() if address is not None else {}
    taker = _taker(asked, given) if given else None
    made: list[tuple[str, SpanExporter]] = []
    for entry in asked:
        for row in settings_of(_load(entry) if isinstance(entry, str) else entry):
            row.find()
        exporter = _make(entry, given if entry is taker else {}) if isinstance(entry, str) else entry
        name = entry if isinstance(entry, str) else type(entry).__name__
        taken = {other for other, _ in made}
        label, number = name, 2
        while label in taken:
            label, number = f"{name}-{number}", number + 1
        if isinstance(exporter, OutcomeSpanExporter):
            exporter.check()
        made.append((label, exporter))
    return made


def _taker(asked: Iterable[str | SpanExporter], given: Mapping[str, Any]) -> str:
    """Return the name of the one exporter that takes the given arguments.

    Raises:
        ConfigurationError: None of them does, or several do; the message names the right setting.
    """
    shown = " and ".join(given)
    takers, others = [], []
    for entry in asked:
        if not isinstance(entry, str):
            others.append(f"{type(entry).__name__} is made already")
            continue
        factory = _load(entry)
        if set(given) <= _parameters(factory):
            takers.append(entry)
        elif setting := getattr(factory, "address_setting", ""):
            others.append(f"the address of {entry!r} is {setting}")
        else:
            others.append(f"{entry!r} takes none")
    if len(takers) == 1:
        return takers[0]
    if takers:
        names = " and ".join(map(repr, takers))
        raise ConfigurationError(f"{shown}: {names} both take it; give one of them as an exporter, made with its own")
    raise ConfigurationError(f"{shown}: this is for OTLP, backend='otlp'; {'; '.join(others)}")


def _parameters(factory: Callable[..., Any]) -> set[str]:
    try:
        return set(inspect.signature(factory).parameters)
    except (TypeError, ValueError):
        return set()


def _load(name: str) -> Callable[..., Any]:
    """Return the factory of an exporter."""
    return _guarded(name, "loaded", lambda: factory_of(name))  # type: ignore[no-any-return]


def factory_of(name: str) -> Callable[..., Any]:
    """Return the class of an exporter, or the function that makes one.

    Raises:
        UnknownExporterError: No exporter has this name.
        ImportError: A package that it needs isn't installed.
    """
    if name == "otlp":
        module, cls, _ = _OTLP_EXPORTERS[OTLP_PROTOCOL.value()]
        return getattr(importlib.import_module(module), cls)  # type: ignore[no-any-return]
    if name == "console":
        return importlib.import_module("otel_rollout_console").ConsoleSpanExporter  # type: ignore[no-any-return]
    return _find(name)  # type: ignore[no-any-return]


def _guarded(name: str, doing: str, call: Callable[[], Any]) -> Any:
    """Return the result of `call`; its error explains what the exporter can't do."""
    try:
        return call()
    except ConfigurationError:
        raise
    except ImportError as error:
        extra = _OTLP_EXPORTERS[OTLP_PROTOCOL.value()][2] if name == "otlp" else name if name in _extras() else None
        raise MissingExtraError(_missing(name, error, extra)) from error
    except Exception as error:
        raise ConfigurationError(f"exporter {name!r} can't be {doing}: {type(error).__name__}: {error}") from error


def _make(name: str, arguments: Mapping[str, Any]) -> SpanExporter:
    loaded = _load(name)
    exporter = _guarded(name, "made", lambda: loaded(**arguments))
    if not isinstance(exporter, SpanExporter):
        raise ConfigurationError(f"exporter {name!r} is a {type(exporter).__qualname__}, not a SpanExporter")
    return exporter


def _find(name: str) -> Any:
    """Return the factory of the entry point `name`; without metadata, the exporter class of a package next to ours."""
    found = list(entry_points(group=GROUP, name=name))
    if found:
        return found[0].load()
    if _extras() or not name.isidentifier():
        raise UnknownExporterError(_unknown(name))
    return _load_without_metadata(name)


def _extras() -> list[str]:
    """Return our distribution's extras; an empty list if its metadata is missing."""
    try:
        return metadata(DISTRIBUTION).get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return []


def _load_without_metadata(name: str) -> Any:
    """Return the exporter class of the package `otel_rollout_NAME` next to ours.

    Entry points are metadata of the distribution, and the package folders that Ray ships (`py_modules`) have none.
    """
    package = f"{_PACKAGE_PREFIX}{name}"
    if importlib.util.find_spec(package) is None:
        raise UnknownExporterError(
            f"no exporter is called {name!r}: otel_rollout is here without the metadata of its distribution, and no "
            f"package {package!r} stands beside it; pip install {DISTRIBUTION} in the environment of every process, "
            "ship that package too, or give an exporter instead of its name"
        )
    module = importlib.import_module(package)
    exporters = [getattr(module, public) for public in getattr(module, "__all__", ())]
    return next(one for one in exporters if isinstance(one, type) and issubclass(one, SpanExporter))


def _missing(name: str, error: ImportError, extra: str | None) -> str:
    if (error.name or "").startswith(_PACKAGE_PREFIX):
        # A package of our distribution: only some of its folders are here.
        line = f"ship that package beside otel_rollout, or pip install {DISTRIBUTION}"
        return f"exporter {name!r} needs a package that isn't here ({error}): {line}"
    line = install_line(extra) if extra else f"pip install {error.name or 'the missing package'}"
    return f"exporter {name!r} needs a package that isn't installed ({error}): {line}"


def _unknown(name: str) -> str:
    installed = sorted({"console", "none", "otlp", *(point.name for point in entry_points(group=GROUP))})
    message = f"no exporter is called {name!r}; installed: {', '.join(installed)}"
    if name == "otlp_proto_grpc":
        return f"{message}; this one comes with: {install_line('grpc')}"
    if "://" in name:
        from otel_rollout.export.http import shown_url

        return f"{message}; a URL is an endpoint: backend='otlp', endpoint={shown_url(name)!r}"
    letters = "".join(filter(str.isalnum, name.lower()))
    other = _OTHER_NAMES.get(letters)
    if other in installed:
        return f"{message}; did you mean {other!r}?"
    if letters in _TAKE_OTLP and closest(name, installed) is None:
        address = _TAKE_OTLP[letters]
        return (
            f"{message}; this backend takes OTLP: backend='otlp', endpoint={address!r} or OTEL_EXPORTER_OTLP_ENDPOINT"
        )
    hint = did_you_mean(name, installed)
    if hint:
        return message + hint
    return f"{message}; an exporter is installed by a package that registers it under the entry point group {GROUP!r}"
