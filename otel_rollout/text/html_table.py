"""Tables in HTML, as notebooks show them."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any, Final

from otel_rollout.text.plain_text import printable, shorten

MAX_CHARACTERS: Final = 200


def html_table(header: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """Return a table, whose texts are escaped.

    Args:
        header: The names of its columns.
        rows: The values of each row; None is an empty cell.
        caption: A line above it.
    """
    head = "".join(f"<th>{_cell(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows)
    title = f"<caption>{_cell(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = f"{value:.6g}" if type(value) is float else shorten(printable(str(value)), MAX_CHARACTERS)
    return html.escape(text)
