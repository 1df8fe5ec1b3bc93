"""The version of otel-rollout; pyproject.toml reads it here."""

from __future__ import annotations

# Not from the distribution's metadata: a package folder that Ray ships (`py_modules`) has none.
__version__ = "0.1.0"
