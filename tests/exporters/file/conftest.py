"""Spans for the tests of the file exporter."""

from __future__ import annotations

import pytest

from tests.trace_folder.writing import trajectory


@pytest.fixture
def make_trajectory():
    """Makes the spans of a trajectory of step 1: so many children with a payload, then the root."""
    return lambda children=2, characters=10: trajectory(children, step=1, payload=characters)
