"""What the tracer reads in the environment: each setting with its value and origin, and what nothing reads."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from otel_rollout.doctor.secrets import shown_value
from otel_rollout.errors import ConfigurationError
from otel_rollout.settings import OURS, SETTINGS, STANDARD_VARIABLES, Setting, read_bytes, read_variables
from otel_rollout.spans.provider import read_sampler

__all__ = ["DEFAULT", "UNSET", "EnvironmentReport", "SettingReport", "VariableReport", "read_environment"]

DEFAULT: Final = "default"
UNSET: Final = "unset"

_OTHER_VARIABLES: Final = {
    "OTEL_ROLLOUT_VERL": "`off` leaves verl as it is",
    "OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS": "for tests: faults of our own are raised",
    # What steers our own test runs.
    "OTEL_ROLLOUT_CACHE": "for tests: where the servers are installed",
    "OTEL_ROLLOUT_REQUIRE_SERVERS": "for tests: a server that can't be installed is a failure",
}
_UNITS: Final = (("GiB", 30), ("MiB", 20), ("KiB", 10))
# OTEL_EXPORTER_OTLP_ENDPOINT has this beside it, for traces alone.
_GENERAL, _FOR_TRACES = "OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_TRACES_"


@dataclass(frozen=True)
class SettingReport:
    """One setting of `init`.

    Args:
        name: Its name.
        value: Its value as it can be shown; what the variable says, where that can't work.
        origin: The variable that it comes from, or `default`.
        fault: What is wrong with it, if something is.
    """

    name: str
    value: str
    origin: str
    fault: str = ""


@dataclass(frozen=True)
class VariableReport:
    """One more variable that is set.

    Args:
        name: Its name.
        value: Its value as it can be shown.
        meaning: What it says.
    """

    name: str
    value: str
    meaning: str


@dataclass(frozen=True)
class EnvironmentReport:
    """What the environment says.

    Args:
        settings: Every setting of `init`.
        variables: The variables of OpenTelemetry and of the exporters that are set.
        faults: What is wrong beyond one setting: names that nothing reads, a sampler that isn't there.
        is_disabled: Whether OTEL_SDK_DISABLED turns tracing off.
    """

    settings: list[SettingReport]
    variables: list[VariableReport]
    faults: list[str]
    is_disabled: bool

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong; that tracing is switched off, whatever else is set, is."""
        return not self.is_disabled and not self.faults and not any(setting.fault for setting in self.settings)


def read_environment(
    exporters_variables: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> EnvironmentReport:
    """Return what the tracer would read.

    Args:
        exporters_variables: What the installed exporters read, with its meaning.
        environ: The environment; the process's own where None.
    """
    environ = os.environ if environ is None else environ
    others = {**STANDARD_VARIABLES, **exporters_variables, **_OTHER_VARIABLES}
    faults = [*_misspelt(others, environ), *_sampler_fault(environ)]
    return EnvironmentReport(
        settings=[_report_setting(setting, environ) for setting in SETTINGS],
        variables=_report_variables(others, environ),
        faults=faults,
        is_disabled=environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true",
    )


def _report_setting(setting: Setting, environ: Mapping[str, str]) -> SettingReport:
    own = [variable for variable in setting.variables if environ.get(variable, "").strip()]
    try:
        value, ignored = read_variables(setting, environ)
    except ConfigurationError as error:
        return SettingReport(setting.name, environ[own[0]], own[0], str(error))
    origin = next(iter(own[len(ignored) :]), DEFAULT)
    shown = _in_words(value, is_size=setting.read is read_bytes)
    return SettingReport(setting.name, shown, origin, "; ".join(ignored))


def _report_variables(others: Mapping[str, str], environ: Mapping[str, str]) -> list[VariableReport]:
    found: list[VariableReport] = []
    for name, meaning in others.items():
        for_traces = name.replace(_GENERAL, _FOR_TRACES) if not name.startswith(_FOR_TRACES) else name
        for variable in dict.fromkeys((name, for_traces)):
            value = environ.get(variable, "").strip()
            if value and not any(variable == one.name for one in found):
                found.append(VariableReport(variable, shown_value(variable, value), meaning))
    return found


def _misspelt(others: Mapping[str, str], environ: Mapping[str, str]) -> list[str]:
    known = sorted({*others, *(variable for setting in SETTINGS for variable in setting.variables)})
    faults = []
    for name in sorted(environ):
        if name.startswith(OURS) and name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            faults.append(f"{name}: nothing reads this variable" + (f"; did you mean {close[0]}?" if close else ""))
    return faults


def _sampler_fault(environ: Mapping[str, str]) -> list[str]:
    _, fault = read_sampler(environ)
    return [fault] if fault else []


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
