"""The pages as files that a browser opens from the disk, where it neither fetches nor imports across files.

All modules go into the page: an import map leads from each one's name to a data: address with its text. A module of a
data: address has no place from which a relative import could lead anywhere, so each import is rewritten to that name.
"""

from __future__ import annotations

import base64
import hashlib
import json
import posixpath
import re
import shutil
from pathlib import Path
from typing import Final

__all__ = ["write_pages"]

PAGE: Final = "index.html"
PREFIX: Final = "otel-rollout/"
"""The beginning of a module's name in the import map."""

_IMPORT: Final = re.compile(r"""(\b(?:from|import)\s*\(?\s*)(["'])(\.{1,2}/[^"'\n]+)\2""")
_START: Final = re.compile(r'<script type="module" src="([^"]+)"></script>')
_CLASSIC: Final = re.compile(r'<script src="([^"]+)"></script>')
_HEAD: Final = re.compile(r"<head>", re.IGNORECASE)
_NOT_COPIED: Final = (".js", ".ts", ".json", ".html")


def write_pages(static: Path, folder: Path, first_script: str) -> None:
    """Write the pages and what they need, except data.

    Args:
        static: The pages' own files.
        folder: A folder that exists.
        first_script: The address of the script that has the first data; it runs before the modules.
    """
    page = (static / PAGE).read_text(encoding="utf-8")
    start = _START.search(page)
    if start is None:
        raise ValueError(f"{static / PAGE} starts no module")
    imports = json.dumps({"imports": _import_map(static, start[1])}, indent=0)
    begin = f'import "{PREFIX}{start[1]}";'
    scripts = (
        f'<script src="{first_script}"></script>\n'
        f'<script type="importmap">{imports}</script>\n<script type="module">{begin}</script>'
    )
    page = page[: start.start()] + scripts + page[start.end() :]
    policy = (
        "default-src 'none'; img-src 'self' data: file:; style-src 'self' file:; font-src 'self' file:; "
        f"script-src 'self' file: data: {_hash(imports)} {_hash(begin)}; base-uri 'none'; form-action 'none'"
    )
    meta = f'<head>\n    <meta http-equiv="Content-Security-Policy" content="{policy}">'
    (folder / PAGE).write_text(_HEAD.sub(lambda _: meta, page, count=1), encoding="utf-8")
    classic = set(_CLASSIC.findall(page)) - {first_script}
    for path in sorted(static.rglob("*")):
        name = path.relative_to(static).as_posix()
        if path.is_file() and (not name.endswith(_NOT_COPIED) or name in classic):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / name)


def _import_map(static: Path, start: str) -> dict[str, str]:
    """Return the names of a module and of all that it leads to, with their texts as data: addresses."""
    addresses: dict[str, str] = {}
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if PREFIX + name in addresses:
            continue
        folder = posixpath.dirname(name)

        def named(found: re.Match[str], folder: str = folder) -> str:
            target = posixpath.normpath(posixpath.join(folder, found[3]))
            if target.startswith("..") or not target.endswith(".js") or not (static / target).is_file():
                # A type of a comment.
                return found[0]
            waiting.append(target)
            return f"{found[1]}{found[2]}{PREFIX}{target}{found[2]}"

        text = _IMPORT.sub(named, (static / name).read_text(encoding="utf-8"))
        encoded = base64.b64encode(text.encode()).decode()
        addresses[PREFIX + name] = f"data:text/javascript;charset=utf-8;base64,{encoded}"
    return addresses


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
