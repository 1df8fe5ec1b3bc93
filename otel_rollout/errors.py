"""The errors of otel-rollout: `init`, `read` and the command line raise them, traced code never does.

RolloutTraceError
├── ConfigurationError            a setting has a value that can't work
│   ├── UnknownExporterError      no exporter has this name
│   ├── MissingExtraError         an exporter needs a package that isn't installed
│   └── AlreadyInitializedError   init was called before with other settings
├── NoTracesError                 a folder to read doesn't exist, or holds no traces
└── UnreadableTraceError          a recorded trajectory can't be read: its file is damaged or gone
"""

from __future__ import annotations

__all__ = [
    "AlreadyInitializedError",
    "ConfigurationError",
    "MissingExtraError",
    "NoTracesError",
    "RolloutTraceError",
    "UnknownExporterError",
    "UnreadableTraceError",
]


class RolloutTraceError(Exception):
    """Base of every error that otel-rollout raises."""


class ConfigurationError(RolloutTraceError):
    """A setting has a value that can't work; the message names the setting, the value and valid values."""


class UnknownExporterError(ConfigurationError):
    """No exporter has this name; the message lists the names that are installed."""


class MissingExtraError(ConfigurationError):
    """An exporter needs a package that isn't installed; the message has the `pip install` line."""


class AlreadyInitializedError(ConfigurationError):
    """`init` was called a second time with other settings; the message names those that differ."""


class NoTracesError(RolloutTraceError):
    """A folder to read doesn't exist, or holds no traces; the message names it."""


class UnreadableTraceError(RolloutTraceError, ValueError):
    """A recorded trajectory can't be read: its file is damaged or gone; the message names it."""
