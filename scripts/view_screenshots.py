"""Take the documentation's pictures of the viewer: the pages of a run of the demo.

    python scripts/view_screenshots.py            # writes docs/images/view-*.png

Runs the demo into a folder, serves the folder with `otel-rollout view`, and takes the pictures.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "tests"), str(ROOT / "scripts")]

from browser import IMAGES, open_browser, open_page, take_picture  # noqa: E402 - found through the path set above

DEMO = ["--backend", "file", "--steps", "10", "--samples", "32", "--rollouts", "5"]
STEP = 3
WIDTH, HEIGHT = 1280, 800
COMMAND = [sys.executable, "-m", "otel_rollout.cli"]


def environment() -> dict[str, str]:
    """Return the environment without settings of tracing."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "OTEL_ROLLOUT_"))}


@contextmanager
def viewer(folder: Path) -> Iterator[str]:
    """Serve a folder's pages.

    Args:
        folder: The trace folder.

    Yields:
        The address with its token.

    Raises:
        RuntimeError: The server ended.
    """
    command = [*COMMAND, "view", folder.name, "--no-browser"]
    process = subprocess.Popen(command, cwd=folder.parent, env=environment(), stdout=subprocess.PIPE, text=True)
    try:
        for line in process.stdout or ():
            if found := re.search(r"http://\S+", line):
                yield found[0]
                return
        raise RuntimeError(f"otel-rollout view ended with {process.wait()}")
    finally:
        process.terminate()
        process.wait(10)


def answer(url: str, path: str) -> Any:
    """Return an answer of the server."""
    parts = urlsplit(url)
    token = parts.query.removeprefix("token=")
    address = f"{parts.scheme}://{parts.netloc}/api/{path}"
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def telling_group(groups: list[dict[str, Any]]) -> Any:
    """Return the group whose rollouts differ most: in reward, status and turns, after a turn that they have alike."""

    def variety(group: dict[str, Any]) -> tuple[int, int, int]:
        statuses = set(group["statuses"])
        turns = group["turns"]["highest"] - group["turns"]["lowest"]
        told = (len(set(group["rewards"]) - {None}) > 1) + ("truncated" in statuses) - ("cancelled" in statuses)
        return told, min(group["first_divergence"] or 0, 2), min(turns, 3) + min(group["tool_errors"], 2)

    return max(groups, key=variety)


def main() -> None:
    """Run the demo, serve its folder, take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, open_browser() as browser:
        subprocess.run([*COMMAND, "demo", *DEMO], cwd=temporary, env=environment(), check=True, timeout=300)
        with viewer(Path(temporary) / "rollout-traces") as url:
            group = telling_group(answer(url, f"step/{STEP}")["groups"])
            sample, rewards = group["sample_index"], group["rewards"]
            rollout = group["rollout_ns"][max(range(len(rewards)), key=lambda at: rewards[at] or 0)]
            pages = {
                "group": (f"#/step/{STEP}/sample/{sample}", ".turn .message"),
                "run": ("#/", ".chart"),
                "step": (f"#/step/{STEP}", ".strip"),
                "trajectory": (f"#/step/{STEP}/sample/{sample}/rollout/{rollout}", ".waterfall-row"),
                "timeline": (f"#/step/{STEP}/timeline", "h1.waited"),
            }
            for name, (address, shown) in pages.items():
                with open_page(browser, url + address, width=WIDTH, height=HEIGHT) as page:
                    page.locator(shown).first.wait_for()
                    if name == "trajectory":
                        page.get_by_role("option", name="turn 2").click()
                    take_picture(page, IMAGES / f"view-{name}.png")


if __name__ == "__main__":
    main()
