"""The documentation's pages, and the way to run one as its reader does."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from scripts.write_tables import DOCS
from tests.docs.code_blocks import code_blocks
from tests.docs.page_run import run, steps
from tests.docs.shown_output import agrees
from tests.servers.weave_server import WeaveServer

__all__ = ["BLOCKS", "PAGES", "ROOT", "SERVERS", "addresses", "base", "check", "pages"]

ROOT = DOCS.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
BLOCKS = {page.relative_to(ROOT).as_posix(): code_blocks(page) for page in PAGES}
SERVERS = {
    "http://localhost:6006": "phoenix",
    "http://localhost:4317": "phoenix",
    "http://localhost:4318": "phoenix",
    "http://localhost:5000": "mlflow_server",
    "http://127.0.0.1:5000": "mlflow_server",
    "http://127.0.0.1:8765": "weave_server",
}
"""The fixture of the server that a page means by an address."""

INSTALLING = re.compile(r"^(?:pip install|uvx|make|python -m venv|\. \S+/activate).*\n", re.MULTILINE)
"""Commands that install: the tests have an environment, and check the names of extras and targets."""


def pages(*, servers: bool) -> list[str]:
    """Return the names of the pages whose code is run here, with or without servers."""
    return [name for name, blocks in BLOCKS.items() if steps(blocks) and bool(addresses(name)) == servers]


def addresses(name: str) -> list[str]:
    """Return the addresses of servers in the code of a page that is run."""
    code = "".join(step.text for step in steps(BLOCKS[name]))
    return [address for address in SERVERS if address in code]


def base(server: Any, address: str) -> str:
    """Return the address under which a server of the test session is what the page means."""
    if isinstance(server, WeaveServer):
        return server.url
    return server.grpc_address if address.endswith(":4317") else server.address


def check(name: str, folder: Path, moved: dict[str, str]) -> None:
    """Run a page's code with other addresses, and compare each output that it shows."""
    blocks = BLOCKS[name]
    todo = steps(blocks)
    for step in todo:
        step.text = INSTALLING.sub("", step.text)
        for address, other in moved.items():
            step.text = step.text.replace(address, other)
            step.output = [line.replace(address, other) for line in step.output]
    # The reader's own program.
    shutil.copy(ROOT / "examples" / "minimal_agent_loop.py", folder / "train.py")
    variables = {"MLFLOW_DISABLE_TELEMETRY": "true"}
    if phoenix := moved.get("http://localhost:6006"):
        # The exporter's default is the page's address.
        variables["PHOENIX_COLLECTOR_ENDPOINT"] = phoenix
    todo = [step for step in todo if step.text]
    for step, result in zip(todo, run(todo, folder, variables), strict=True):
        where = f"{name}:{step.line}: {step.text}\n{result.output}"
        failures = [step.exit_code] if step.exit_code else []
        assert (result.exit_code, result.failures) == (step.exit_code, failures), where
        assert not step.output or agrees("\n".join(step.output), result.output), where
