"""The other pages' code runs as it is pasted, and prints what the pages show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import SERVERS, addresses, base, check, pages
from tests.docs.test_how_to_pages import HOW_TO
from tests.docs.test_tutorials import TUTORIALS


@pytest.mark.parametrize(
    "name", [name for name in pages(servers=False) if name not in TUTORIALS and not name.startswith(HOW_TO)]
)
def test_the_code_runs(name: str, tmp_path: Path):
    """Each block that is not marked otherwise succeeds, and prints what the page shows."""
    check(name, tmp_path, {})


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("name", pages(servers=True))
def test_the_code_runs_with_servers(name: str, tmp_path: Path, request: pytest.FixtureRequest):
    """The same, for a page that names the addresses of servers."""
    servers = {address: request.getfixturevalue(SERVERS[address]) for address in addresses(name)}
    check(name, tmp_path, {address: base(server, address) for address, server in servers.items()})
