"""Results of tools: those that hold nothing or are errors in data (ODD), and ordinary ones (ORDINARY)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from pydantic import BaseModel


@dataclass
class ExecResult:
    """What a sandbox returns."""

    success: bool
    returncode: int
    stdout: str
    stderr: str


@dataclass
class SearchResults:
    """What a search client returns."""

    query: str
    hits: list[Any]
    total: int


class HttpResponse(BaseModel):
    """What an HTTP tool returns."""

    status_code: int
    text: str


class RetrieverOutput(BaseModel):
    """What a retriever returns."""

    documents: list[str]
    scores: list[float]


_PARTS = [SimpleNamespace(type="text", text="Unknown tool: foo")]
_SAID = SimpleNamespace(type="text", text="done: 3 files")
_OBJECTS = [
    (
        True,
        "error/mcp-object",
        SimpleNamespace(content=_PARTS, isError=True, structuredContent=None, meta=None),
    ),
    (True, "error/pydantic-status", HttpResponse(status_code=500, text="Internal Server Error")),
    (True, "empty/dataclass-search", SearchResults(query="abc", hits=[], total=0)),
    (True, "error/dataclass-exec", ExecResult(False, 2, "", "grep: x: No such file or directory")),
    (True, "empty/pydantic-docs", RetrieverOutput(documents=[], scores=[])),
    (True, "empty/array", np.zeros(0)),
    (True, "empty/bytes", b""),
    (False, "exec/dataclass", ExecResult(success=True, returncode=0, stdout="ok\n", stderr="")),
    (False, "http/pydantic-200", HttpResponse(status_code=200, text="pong")),
    (False, "retriever/zero-score", RetrieverOutput(documents=["d"], scores=[0.0])),
    (False, "sql/tuple-zero", [(0,)]),
    (False, "mcp/object", SimpleNamespace(content=[_SAID], isError=False, structuredContent=None, meta=None)),
    (False, "search/dataclass", SearchResults(query="abc", hits=["h1"], total=1)),
    (False, "numpy/zeros", np.zeros(3)),
    (False, "bytes/png", b"\x89PNG\r\n\x1a\n"),
]
_LINES = Path(__file__).with_name("cases.jsonl").read_text(encoding="utf-8").splitlines()
_CASES = [*map(json.loads, _LINES), *({"odd": odd, "name": name, "value": value} for odd, name, value in _OBJECTS)]
ODD = [each for each in _CASES if each["odd"]]
ORDINARY = [each for each in _CASES if not each["odd"]]
