"""Take the documentation's pictures of the demo in trackio: the list of trajectories, and one of them open.

    python scripts/trackio_screenshots.py            # writes docs/images/trackio-*.png

Starts a dashboard of its own, runs the demo into it, and takes the pictures.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "tests"), str(ROOT / "scripts")]

from browser import IMAGES, open_browser, open_page, take_picture  # noqa: E402 - found through the path set above
from environments import ensure  # noqa: E402
from servers.trackio_server import TrackioServer  # noqa: E402

PROJECT = "otel-rollout-demo"


def run_demo(server: TrackioServer) -> None:
    """Run the demo with the server as its backend."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "TRACKIO_"))}
    environment |= {"TRACKIO_SERVER_URL": server.address, "TRACKIO_WRITE_TOKEN": server.write_token}
    options = ["--backend", "trackio", "--steps", "1", "--samples", "4"]
    subprocess.run(
        [sys.executable, "-m", "otel_rollout.cli", "demo", *options], env=environment, check=True, timeout=300
    )


def main() -> None:
    """Start the dashboard, run the demo, take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        open_browser() as browser,
        TrackioServer(ensure("trackio"), Path(folder)) as server,
    ):
        run_demo(server)
        traces = f"{server.address}/traces?project={PROJECT}"
        with open_page(browser, traces, width=1600, height=900) as page:
            page.get_by_text("s3r3").first.wait_for()
            take_picture(page, IMAGES / "trackio-trajectories.png")
            page.locator("tbody tr").first.click()
            # A turn: its words are in the pane next to the tree.
            page.get_by_text("Policy.generate").last.click()
            take_picture(page, IMAGES / "trackio-trajectory.png")


if __name__ == "__main__":
    main()
