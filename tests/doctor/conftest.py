"""An address for the doctor to fail at."""

from __future__ import annotations

import pytest

from tests.servers.process import free_port


@pytest.fixture
def unused_address() -> str:
    """An address that nobody listens at."""
    return f"http://127.0.0.1:{free_port()}"
