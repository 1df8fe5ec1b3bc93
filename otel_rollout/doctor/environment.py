"""The environment as the tracer reads it: each setting's value and origin, and variables that nothing reads."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from otel_rollout.errors import ConfigurationError
from otel_rollout.export.http import without_userinfo
from otel_rollout.export.proxies import PROXY_VARIABLES
from otel_rollout.finish.redaction import Redactor
from otel_rollout.init_notes import OTHER_VARIABLES
from otel_rollout.record.provider import read_sampler
from otel_rollout.settings import (
    CHECKED_VARIABLES,
    OTLP_PROTOCOL,
    OURS,
    SETTINGS,
    STANDARD_VARIABLES,
    VARIABLES,
    Setting,
    read_bytes,
)
from otel_rollout.text.misspelt_variables import unread_variables

DEFAULT: Final = "default"
UNSET: Final = "unset"

_UNITS: Final = (("GiB", 30), ("MiB", 20), ("KiB", 10))

# Names of files have another end: OTEL_EXPORTER_OTLP_CLIENT_KEY, WANDB_IDENTITY_TOKEN_FILE.
_SECRET: Final = re.compile(r"(?:API_KEY|TOKEN|PASSWORD|SECRET)$")
_SCHEME: Final = re.compile(r"[\w+.-]+://")
_QUERY: Final = re.compile(r"\?.*", re.DOTALL)


@dataclass(frozen=True)
class SettingReport:
    """One setting of `init`.

    Args:
        name: Its name.
        value: Its value as it can be shown; the variable's text if that is no value.
        origin: The variable that it comes from, or `default`.
        fault: The fault of the value, if it has one.
    """

    name: str
    value: str
    origin: str
    fault: str = ""


@dataclass(frozen=True)
class VariableReport:
    """A variable of OpenTelemetry or of an exporter that is set, with its value as it can be shown."""

    name: str
    value: str
    meaning: str


@dataclass(frozen=True)
class EnvironmentReport:
    """The environment.

    Args:
        settings: Every setting of `init`.
        variables: The variables of OpenTelemetry and of the exporters that are set.
        faults: Faults beyond one setting: names that nothing reads, an unknown sampler.
        is_disabled: If OTEL_SDK_DISABLED turns tracing off.
    """

    settings: list[SettingReport]
    variables: list[VariableReport]
    faults: list[str]
    is_disabled: bool

    @property
    def is_sound(self) -> bool:
        """If there is no fault; tracing that is switched off is one."""
        return not self.is_disabled and not self.faults and not any(setting.fault for setting in self.settings)


def read_environment(
    exporters_settings: Iterable[Setting], environ: Mapping[str, str] | None = None
) -> EnvironmentReport:
    """Read the environment as the tracer would.

    Args:
        exporters_settings: The settings of the installed exporters.
        environ: The environment; the process's own if None.
    """
    environ = os.environ if environ is None else environ
    rows = [OTLP_PROTOCOL, *CHECKED_VARIABLES, *exporters_settings]
    meanings = {variable: row.meaning for row in rows for variable in row.variables}
    others = {**STANDARD_VARIABLES, **OTHER_VARIABLES, **PROXY_VARIABLES, **meanings}
    _, sampler_fault = read_sampler(environ)
    faults = [*_unread(others, environ), *([sampler_fault] if sampler_fault else [])]
    faults += [report.fault for report in (_report_setting(row, environ) for row in rows) if report.fault]
    return EnvironmentReport(
        settings=[_report_setting(setting, environ) for setting in SETTINGS],
        variables=_report_variables(others, environ),
        faults=faults,
        is_disabled=environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true",
    )


def _report_setting(setting: Setting, environ: Mapping[str, str]) -> SettingReport:
    try:
        found = setting.find(environ)
    except ConfigurationError as error:
        variable = next(name for name in setting.variables if environ.get(name, "").strip())
        return SettingReport(setting.name, environ[variable], variable, str(error))
    shown = _in_words(found.value, is_size=setting.read is read_bytes)
    return SettingReport(setting.name, shown, found.variable or DEFAULT, "; ".join(found.ignored))


def _report_variables(others: Mapping[str, str], environ: Mapping[str, str]) -> list[VariableReport]:
    return [
        VariableReport(name, shown_value(name, value), meaning)
        for name, meaning in others.items()
        if (value := environ.get(name, "").strip())
    ]


def _unread(others: Mapping[str, str], environ: Mapping[str, str]) -> list[str]:
    unread = unread_variables(environ, {*others, *VARIABLES}, OURS)
    return [f"{name}: nothing reads this variable{_question(near)}" for name, near in unread.items()]


def _question(near: str | None) -> str:
    return f"; did you mean {near}?" if near else ""


def _in_words(value: Any, *, is_size: bool) -> str:
    if value is None:
        return UNSET
    if isinstance(value, bool):
        return str(value).lower()
    if is_size and isinstance(value, int) and value >= 2**10 and value % 2**10 == 0:
        unit, shift = next((unit, shift) for unit, shift in _UNITS if value % 2**shift == 0)
        return f"{value >> shift} {unit}"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    return str(value)


def shown_value(variable: str, value: str) -> str:
    """Return a variable's value without secrets: keys, values of headers, a URL's password and query.

    Args:
        variable: Its name.
        value: Its value.
    """
    if _SECRET.search(variable):
        return f"(hidden, {len(value)} characters)"
    if variable.endswith("HEADERS"):
        return ", ".join(_shown_pair(pair) for pair in value.split(",") if pair.strip())
    if variable.endswith("ATTRIBUTES"):
        return str(Redactor().value(value)[0])
    if "://" in value or variable.endswith("ENDPOINT"):
        shown = without_userinfo(value)
        if "@" in shown:
            # A letter of the password may be one that ends it elsewhere: it can reach to the last `@`.
            scheme = _SCHEME.match(value)
            shown = f"{scheme[0] if scheme else ''}(hidden){value[value.rindex('@') :]}"
        return _QUERY.sub("?(hidden)", shown)
    return value


def _shown_pair(pair: str) -> str:
    name, separator, _ = pair.partition("=")
    # Without a name, the whole may be a secret.
    return f"{name.strip()}=(hidden)" if separator else "(hidden)"
