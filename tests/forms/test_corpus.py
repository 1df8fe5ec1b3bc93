"""Every form of the corpus is read, and nothing of it is lost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.forms.open_corpus import CASES, FINISH_SAME
from tests.forms.score import score_case

UNREAD = {"dspy/prediction": {"usage"}}
"""The parts that are not read: private fields have DSPy's usage."""


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_form(case: dict[str, Any]) -> None:
    """Answer, tokens, finish reason and prompt of an op are those that its documentation shows; all values are kept."""
    score = score_case(case, FINISH_SAME)

    unread = {name for name in ("answer", "usage", "finish", "prompt") if getattr(score, name) is False}
    assert (unread, score.lost) == (UNREAD.get(score.name, set()), [])
