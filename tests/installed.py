"""otel-rollout as it is installed beside the tests, from a wheel or from the source tree."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

__all__ = ["CORE", "EXPORTERS", "import_path"]


def _folder(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None, f"{package} is not installed"
    assert spec.origin is not None
    return Path(spec.origin).parent


CORE = _folder("otel_rollout")
"""The folder of the core."""
EXPORTERS = sorted(file.parent for file in _folder("otel_rollout_otlp").parent.glob("otel_rollout_*/__init__.py"))
"""The folders of the exporters."""


@functools.lru_cache(maxsize=1)
def import_path() -> Path:
    """Return a folder that holds our packages and nothing else, for PYTHONPATH of another environment's Python."""
    folder = Path(tempfile.mkdtemp(prefix="otel-rollout-installed-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for package in (CORE, *EXPORTERS):
        (folder / package.name).symlink_to(package)
    return folder
