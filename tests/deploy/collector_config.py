"""The collector's configuration as the collector puts it together, and what is wrong with it.

Holds without a collector what one of version 0.159.0 would refuse: components and options that it does not know, names
that nothing defines. The tables name what our files use and what is easily taken for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

__all__ = ["SECTIONS", "load", "merged", "problems"]

SECTIONS: Final = ("receivers", "processors", "exporters", "extensions")

_TLS: Final = dict.fromkeys(
    ("insecure", "insecure_skip_verify", "ca_file", "cert_file", "key_file", "server_name_override")
)
_SENDING: Final = {
    "timeout": None,
    "retry_on_failure": dict.fromkeys(
        ("enabled", "initial_interval", "max_interval", "max_elapsed_time", "multiplier", "randomization_factor")
    ),
    "sending_queue": {
        **dict.fromkeys(
            ("enabled", "num_consumers", "wait_for_result", "block_on_overflow", "sizer", "queue_size", "storage")
        ),
        "batch": {
            **dict.fromkeys(("flush_timeout", "min_size", "max_size", "sizer")),
            "partition": dict.fromkeys(("metadata_keys",)),
        },
    },
}
# The components of the pinned version with their options; None where anything may stand.
_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "receivers": {
        "otlp": {
            "protocols": {
                "grpc": {
                    **dict.fromkeys(
                        ("endpoint", "transport", "max_recv_msg_size_mib", "max_concurrent_streams", "include_metadata")
                    ),
                    **dict.fromkeys(("read_buffer_size", "write_buffer_size", "keepalive", "auth", "tls")),
                },
                "http": {
                    **dict.fromkeys(("endpoint", "max_request_body_size", "include_metadata", "cors", "auth", "tls")),
                    **dict.fromkeys(("traces_url_path", "metrics_url_path", "logs_url_path", "compression_algorithms")),
                },
            }
        }
    },
    "processors": {
        "memory_limiter": dict.fromkeys(
            ("check_interval", "limit_mib", "spike_limit_mib", "limit_percentage", "spike_limit_percentage")
        ),
    },
    "exporters": {
        "otlp_grpc": {
            **_SENDING,
            **dict.fromkeys(("endpoint", "compression", "headers", "balancer_name")),
            "tls": _TLS,
        },
        "otlp_http": {
            **_SENDING,
            **dict.fromkeys(("endpoint", "traces_endpoint", "compression", "headers")),
            "tls": _TLS,
        },
        "nop": {},
    },
    "extensions": {
        "health_check": dict.fromkeys(("endpoint", "path", "response_body", "tls")),
        "file_storage": {
            **dict.fromkeys(("directory", "create_directory", "directory_permissions", "timeout", "fsync", "recreate")),
            "compaction": {
                **dict.fromkeys(("on_start", "on_rebound", "cleanup_on_start", "directory", "max_transaction_size")),
                **dict.fromkeys(("check_interval", "rebound_needed_threshold_mib", "rebound_trigger_threshold_mib")),
            },
        },
    },
}
_DEPRECATED: Final[Mapping[str, Mapping[str, str]]] = {
    "exporters": {"otlp": "otlp_grpc", "otlphttp": "otlp_http", "logging": "debug", "jaeger": "otlp_grpc"},
    "processors": {"batch": "sending_queue.batch of the exporters"},
    "extensions": {"memory_ballast": "GOMEMLIMIT"},
    "receivers": {"jaeger": "otlp", "opencensus": "otlp"},
}


def load(path: Path) -> dict[str, Any]:
    """Return the content of a configuration file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def merged(locations: Iterable[str], find: Callable[[str], Path], variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration that a collector has that is started with these `--config` options.

    Args:
        locations: The values of the options: paths, or `yaml:` and a text with `::` between the keys.
        find: Where a path of the options is on this machine.
        variables: The collector's environment.
    """
    found: dict[str, Any] = {}
    for location in locations:
        if location.startswith("yaml:"):
            (keys, value), *_ = yaml.safe_load(location.removeprefix("yaml:")).items()
            for key in reversed(keys.split("::")):
                value = {key: value}
            found = merge(found, value)
        else:
            found = merge(found, load(find(location)))
    return expand(found, variables)


def merge(first: Any, second: Any) -> Any:
    """Return two configurations as one: maps are joined, of anything else the second one counts."""
    if isinstance(first, dict) and isinstance(second, dict):
        return {**first, **{key: merge(first.get(key), value) for key, value in second.items()}}
    return second


def expand(value: Any, variables: Mapping[str, str]) -> Any:
    """Return a value with each `${env:NAME:-default}` in it replaced."""
    if isinstance(value, dict):
        return {key: expand(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [expand(item, variables) for item in value]
    if isinstance(value, str):
        return re.sub(r"\$\{env:(\w+)(?::-([^}]*))?\}", lambda name: variables.get(name[1], name[2] or ""), value)
    return value


def problems(config: Mapping[str, Any]) -> list[str]:
    """Return what the pinned collector would refuse, or what never does anything; none is right."""
    return [*component_problems(config), *reference_problems(config), *order_problems(config)]


def component_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield components and options that the pinned collector does not know."""
    for section in sorted(config.keys() - {*SECTIONS, "service"}):
        yield f"{section}: no such section"
    for section in SECTIONS:
        for name, settings in (config.get(section) or {}).items():
            kind = name.partition("/")[0]
            if kind in _DEPRECATED[section]:
                yield f"{section}.{name}: deprecated, use {_DEPRECATED[section][kind]}"
            elif kind not in _OPTIONS[section]:
                yield f"{section}.{name}: no such component"
            else:
                yield from option_problems(f"{section}.{name}", settings, _OPTIONS[section][kind])


def option_problems(where: str, settings: Any, known: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the options that a component does not have."""
    if known is None or not isinstance(settings, dict):
        return
    for option, value in settings.items():
        if option not in known:
            yield f"{where}.{option}: no such option"
        else:
            yield from option_problems(f"{where}.{option}", value, known[option])


def reference_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield names that nothing defines, and definitions that nothing names."""
    service = config.get("service") or {}
    defined = {section: set(config.get(section) or {}) for section in SECTIONS}
    used: dict[str, set[str]] = {section: set() for section in SECTIONS}
    used["extensions"] |= set(service.get("extensions") or [])
    for pipeline, parts in (service.get("pipelines") or {}).items():
        for section in ("receivers", "processors", "exporters"):
            used[section] |= set(parts.get(section) or [])
        for section in ("receivers", "exporters"):
            if not parts.get(section):
                yield f"service.pipelines.{pipeline}: no {section}"
    if not service.get("pipelines"):
        yield "service.pipelines: none"
    for name, settings in (config.get("exporters") or {}).items():
        storage = ((settings or {}).get("sending_queue") or {}).get("storage")
        if storage and storage not in used["extensions"]:
            yield f"exporters.{name}.sending_queue.storage: {storage} is not in service.extensions"
    for section in SECTIONS:
        for name in sorted(used[section] - defined[section]):
            yield f"{section}: {name} is not defined"
        # An exporter may wait for the profile that names it.
        for name in sorted(defined[section] - used[section]) if section != "exporters" else ():
            yield f"{section}.{name}: nothing uses it"


def order_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield pipelines that keep something before the memory limiter has seen it."""
    for pipeline, parts in ((config.get("service") or {}).get("pipelines") or {}).items():
        if (parts.get("processors") or [""])[0] != "memory_limiter":
            yield f"service.pipelines.{pipeline}: memory_limiter is not the first processor"
