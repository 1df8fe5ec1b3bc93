"""Any value's payload is valid JSON in UTF-8, within its limit, with all integers within 64 bits."""

from __future__ import annotations

import collections
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_rollout.finish import PayloadFinisher, Redactor
from otel_rollout.record import take_snapshot, to_json
from tests.payload_values import Attrs, Slotted

pytestmark = pytest.mark.every_python


_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**62, 2**65)
    | st.floats()
    | st.text(st.characters(codec=None))
    | st.text(st.characters(categories=["Cs"]))
    | st.binary()
    | st.datetimes()
    | st.complex_numbers()
    | st.decimals()
)


_KEYS = st.text(st.characters(codec=None)) | st.integers() | st.none() | st.booleans() | st.floats() | st.binary()


_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(_KEYS, inner)
        | st.tuples(inner, inner)
        | st.builds(Attrs, st.integers(), inner)
        | st.builds(Slotted, inner)
        | st.builds(collections.deque, st.lists(inner))
    ),
    max_leaves=30,
)


def _integers(value: Any) -> list[int]:
    if isinstance(value, dict):
        return [number for item in value.values() for number in _integers(item)]
    if isinstance(value, list):
        return [number for item in value for number in _integers(item)]
    return [value] if isinstance(value, int) else []


class TestFinishedPayload:
    """The exported payload."""

    @settings(max_examples=300)
    @given(value=_VALUES, limit=st.integers(5, 2000))
    def test_any_value(self, value, limit):
        """Any value comes out as valid JSON in UTF-8, with all integers within 64 signed bits, within the limit."""
        for taken in (take_snapshot(value), take_snapshot({"value": value})):
            finisher = PayloadFinisher(limit, Redactor())
            finished, _ = finisher.cut(finisher.clean(to_json(taken))[0])

            assert len(finished) <= limit
            assert all(-(2**63) <= number < 2**63 for number in _integers(orjson.loads(finished)))

    @settings(max_examples=100)
    @given(value=st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(), st.lists))
    def test_plain_values_stay_as_they_are(self, value):
        """Plain JSON values come out unchanged."""
        assert orjson.loads(PayloadFinisher(2**20, None).clean(to_json(take_snapshot(value)))[0]) == value


class TestBudget:
    """Values larger than their budget."""

    @settings(max_examples=30, deadline=None)
    @given(
        value=st.lists(_VALUES, min_size=1) | st.dictionaries(_KEYS, _VALUES, min_size=1), budget=st.integers(64, 4000)
    )
    def test_what_is_cut_is_json(self, value, budget):
        """What fits is valid JSON of about the budget's size, and what doesn't is counted."""
        for given_value in (value, [value] * 70, dict.fromkeys(range(70), value)):
            taken = take_snapshot(given_value, budget)
            whole = take_snapshot(given_value, 2**24)

            assert taken.size < 3 * budget + 1500
            assert orjson.loads(to_json(taken)) == orjson.loads(to_json(whole)) or taken.left_out
