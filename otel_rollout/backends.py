"""Find exporters by name: `otlp`, `console`, and those in OpenTelemetry's entry point group."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import logging
import os
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, entry_points, metadata
from typing import Any, Final

from opentelemetry.environment_variables import OTEL_TRACES_EXPORTER
from opentelemetry.sdk.trace.export import SpanExporter

from otel_rollout.errors import ConfigurationError, MissingExtraError, UnknownExporterError
from otel_rollout.export.exporter import OutcomeSpanExporter
from otel_rollout.installing import install_line

__all__ = ["Backend", "backend_names", "make_exporters", "requested_backend"]

Backend = str | SpanExporter | Sequence["str | SpanExporter"]
"""The type of `init(backend=…)`: a name, names separated by commas, an exporter, or a list of names and exporters."""

_logger = logging.getLogger("otel_rollout")

DISTRIBUTION: Final = "otel-rollout"
_PACKAGE_PREFIX: Final = "otel_rollout_"
GROUP: Final = "opentelemetry_traces_exporter"

_OTLP_EXPORTERS: Final = {
    "http/protobuf": ("otel_rollout_otlp.http_exporter", "OtlpHttpSpanExporter", None),
    "grpc": ("otel_rollout_otlp.grpc_exporter", "OtlpGrpcSpanExporter", "grpc"),
}
_PROTOCOL_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


def requested_backend(backend: Backend | None) -> list[str | SpanExporter]:
    """Return the list of requested backends; empty if tracing is off.

    Args:
        backend: The argument of `init`; if None, `OTEL_TRACES_EXPORTER` counts.

    Raises:
        ConfigurationError: Other names stand beside `none`, or an entry is neither a name nor an exporter.
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
    for entry in entries:
        if isinstance(entry, str):
            asked.extend(name.strip() for name in entry.split(",") if name.strip())
        elif isinstance(entry, SpanExporter):
            asked.append(entry)
        else:
            raise ConfigurationError(f"backend: {entry!r} should be a name or a SpanExporter")
    unique = list(dict.fromkeys(asked))
    if "none" in unique:
        if len(unique) > 1:
            others = ", ".join(str(name) for name in unique if name != "none")
            raise ConfigurationError(
                f"{origin}: 'none' turns tracing off and stands alone; without it there is: {others}"
            )
        return []
    return unique


def backend_names(asked: Iterable[str | SpanExporter]) -> str | None:
    """Return the backends' names separated by commas, as verl has them; None if there are none."""
    return ",".join(entry if isinstance(entry, str) else type(entry).__name__ for entry in asked) or None


def make_exporters(asked: Iterable[str | SpanExporter]) -> list[tuple[str, SpanExporter]]:
    """Return the exporters with their names in logs and statistics.

    Args:
        asked: Names and exporters.

    Raises:
        UnknownExporterError: No exporter has this name.
        MissingExtraError: The exporter needs a package that isn't installed.
        ConfigurationError: The exporter can't work as it is configured.
    """
    made: list[tuple[str, SpanExporter]] = []
    for entry in asked:
        exporter = _make(entry) if isinstance(entry, str) else entry
        name = entry if isinstance(entry, str) else type(entry).__name__
        taken = {other for other, _ in made}
        label, number = name, 2
        while label in taken:
            label, number = f"{name}-{number}", number + 1
        if isinstance(exporter, OutcomeSpanExporter):
            exporter.check()
        made.append((label, exporter))
    return made


def _make(name: str) -> SpanExporter:
    extra = name if name in _extras() else None
    doing = "loaded"
    try:
        if name == "otlp":
            module, cls, extra = _OTLP_EXPORTERS[_otlp_protocol()]
            loaded: Any = getattr(importlib.import_module(module), cls)
        elif name == "console":
            loaded = importlib.import_module("otel_rollout_console.exporter").ConsoleSpanExporter
        else:
            loaded = _find(name)
        doing = "made"
        exporter = loaded()
    except ConfigurationError:
        raise
    except ImportError as error:
        raise MissingExtraError(_missing(name, error, extra)) from error
    except Exception as error:
        raise ConfigurationError(f"exporter {name!r} can't be {doing}: {type(error).__name__}: {error}") from error
    if not isinstance(exporter, SpanExporter):
        raise ConfigurationError(f"exporter {name!r} is a {type(exporter).__qualname__}, not a SpanExporter")
    return exporter


def _find(name: str) -> Any:
    """Return the factory of the entry point `name`; without metadata, the exporter class of a package beside ours."""
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
    """Return the exporter class of the package `otel_rollout_NAME` beside ours.

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


def _otlp_protocol() -> str:
    for variable in _PROTOCOL_VARIABLES:
        protocol = os.environ.get(variable, "").strip().lower()
        if protocol in _OTLP_EXPORTERS:
            return protocol
        if protocol:
            right = " or ".join(_OTLP_EXPORTERS)
            _logger.warning("%s=%r is ignored: this should be %s", variable, protocol, right)
    return "http/protobuf"


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
    close = difflib.get_close_matches(name, installed, n=1)
    if close:
        return f"{message}; did you mean {close[0]!r}?"
    return f"{message}; an exporter is installed by a package that registers it under the entry point group {GROUP!r}"
