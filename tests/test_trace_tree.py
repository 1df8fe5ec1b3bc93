"""The spans of a trace as a tree of text."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import Event

from otel_rollout.facts import Place, error_of, time_bar, walk_tree
from tests.trace_folder.recordings import START, make_span


def draw(*places: Place) -> list[str]:
    return [f"{guide}{place.span_id}" for place, guide, _ in walk_tree(places, lambda place: place)]


class TestWalkTree:
    """The order and the lines of a tree."""

    def test_children_stand_below_their_parent_in_the_order_of_start(self):
        """Whatever the order in which spans are given, the tree is the same."""
        places = [Place(4, 2, 30), Place(3, 1, 40), Place(2, 1, 20), Place(1, None, 10)]
        assert draw(*places) == draw(*reversed(places)) == ["1", "├─ 2", "│  └─ 4", "└─ 3"]

    def test_spans_that_start_together_keep_their_order(self):
        """With equal times, the given order counts."""
        assert draw(Place(1, None, 0), Place(3, 1, 0), Place(2, 1, 0)) == ["1", "├─ 3", "└─ 2"]

    def test_a_span_whose_parent_is_missing_is_a_root(self):
        """Nothing is left out of the drawing for want of a parent, or for being its own."""
        assert draw(Place(2, 9, 1), Place(3, 3, 2)) == ["2", "3"]

    def test_what_stands_below_a_node_continues_its_lines(self):
        """Text below a node is indented so that the tree's lines run on beside it."""
        places = [Place(1, None, 0), Place(2, 1, 1), Place(3, 2, 2), Place(4, 1, 3)]
        below = [below for _, _, below in walk_tree(places, lambda place: place)]
        assert below == ["│  ", "│  │  ", "│        ", "      "]


class TestSpans:
    """The parts of a span's line."""

    @pytest.mark.parametrize(
        ("seconds", "bar"),
        [
            ((0.0, 10.0), "━━━━━━━━━━"),
            ((2.0, 5.0), "  ━━━     "),
            ((9.99, 9.999), "         ━"),
            ((10.0, 12.0), "         ━"),
            ((-3.0, 1.0), "━         "),
        ],
    )
    def test_a_bar_shows_when_it_ran(self, seconds, bar):
        """However short, late or early the span is, its bar is seen and keeps to its columns."""
        span = make_span("op", 2, 1, seconds=seconds)
        assert time_bar(span, START, START + 10_000_000_000, 10) == bar

    def test_an_error_is_its_exception(self):
        """The exception's class and message, else the status, else a word."""
        raised = Event("exception", {"exception.type": "package.ToolError", "exception.message": "no entry"})
        assert error_of(make_span("op", 2, 1, error="status", events=(Event("other"), raised))) == "ToolError: no entry"
        assert error_of(make_span("op", 2, 1, error="status")) == "status"
        assert error_of(make_span("op", 2, 1)) == "failed"
