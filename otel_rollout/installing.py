"""The command that installs an extra of otel-rollout."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from urllib.parse import unquote, urlsplit

_DISTRIBUTION = "otel-rollout"


def install_line(extra: str) -> str:
    """Return the command that adds an extra, from the clone that otel-rollout was installed from, if it was."""
    # It takes longer to import than all of a list's rows.
    import importlib.metadata

    try:
        # https://packaging.python.org/en/latest/specifications/direct-url/
        origin = json.loads(importlib.metadata.distribution(_DISTRIBUTION).read_text("direct_url.json") or "{}")
        url = urlsplit(origin["url"])
        path = Path(unquote(url.path))
        is_editable = bool(origin.get("dir_info", {}).get("editable"))
    except (importlib.metadata.PackageNotFoundError, KeyError, TypeError, ValueError, AttributeError):
        return f"pip install '{_DISTRIBUTION}[{extra}]'"
    if url.scheme != "file" or not path.exists():
        return f"pip install '{_DISTRIBUTION}[{extra}]'"
    return f"pip install {'-e ' if is_editable else ''}{shlex.quote(f'{path}[{extra}]')}"
