"""Redacted texts, searched by betterleaks: another program, with other rules, finds nothing in them."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.redaction_quality import cases
from otel_rollout.finish import Redactor

pytestmark = pytest.mark.slow

LEFT = Counter(
    {
        # Words without quotes after a name: `userPassword = marble_pebble_cobalt_umbra`.
        "generic-password": 1,
        # A webhook's address in the query of another address, with its signs in per cent.
        "slack-webhook-url": 1,
    }
)
"""Known leaks, by betterleaks' rules."""


def found(program: Path, folder: Path, texts: list[str]) -> list[dict[str, Any]]:
    """Return what betterleaks finds in texts."""
    folder.mkdir()
    for number, text in enumerate(texts):
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")
    report = folder.with_suffix(".json")
    command = [program, "--no-banner", "--no-allow-signatures", "--exit-code=0", f"--output={report}", folder]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return json.loads(report.read_text(encoding="utf-8"))["findings"]


def test_nothing_is_left(environment: Callable[[str], Path], tmp_path: Path) -> None:
    """Of the benchmark's cases, in most of which it finds a secret, it finds nothing but the known leaks."""
    (package,) = environment("betterleaks").glob("lib/python*/site-packages/betterleaks")
    program = package / "bin" / "betterleaks"
    program.chmod(0o755)
    texts = [row["text"] for name in ("forms", "keys") for row in cases(name)]
    redactor = Redactor()

    before = found(program, tmp_path / "before", texts)
    after = found(program, tmp_path / "after", [redactor.value(text)[0] for text in texts])

    assert len(before) > len(texts) / 2
    # What stands around a secret that was replaced is none.
    left = [each for each in after if "[redacted]" not in each["match"]["value"]]
    assert Counter(each["rule_id"] for each in left) == LEFT, [each["match"]["full"] for each in left]
