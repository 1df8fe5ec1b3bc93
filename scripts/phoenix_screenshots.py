"""Take the documentation's pictures of the demo in Phoenix: trajectories, one of them, and a session.

    python scripts/phoenix_screenshots.py            # writes docs/images/phoenix-*.png

Starts a Phoenix of its own, runs the demo into it, and takes the pictures with Debian's chromium, headless.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "tests"), str(ROOT / "scripts")]

from environments import ensure  # noqa: E402 - found through the path set above
from servers.phoenix_server import Phoenix  # noqa: E402

IMAGES = ROOT / "docs" / "images"
SPANS_OF_THE_DEMO = 200
CHROMIUM_OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-prefers-reduced-motion",
    "--virtual-time-budget=20000",
]
COLOURS = 128
"""Of the palette: screenshots need few, and a picture with a palette is a third of the size."""


def run_demo(phoenix: Phoenix) -> None:
    """Run the demo with Phoenix as its backend."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = phoenix.address
    command = [sys.executable, "-m", "otel_rollout.cli", "demo", "--backend", "otlp", "--steps", "1", "--samples", "8"]
    subprocess.run(command, env=environment, check=True, timeout=300)


def picture(url: str, file: Path, *, width: int, height: int) -> None:
    """Take a picture of a page.

    Args:
        url: The page.
        file: Where the picture goes.
        width: Of the window.
        height: Of the window.
    """
    profile = tempfile.mkdtemp(prefix="chromium-")
    try:
        command = [
            "chromium", *CHROMIUM_OPTIONS, f"--user-data-dir={profile}", f"--window-size={width},{height}",
            f"--screenshot={file}", url,
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=180)
    finally:
        shutil.rmtree(profile, ignore_errors=True)
    with Image.open(file) as taken:
        taken.convert("RGB").quantize(COLOURS).save(file, optimize=True)
    print(f"{file.relative_to(ROOT)}: {file.stat().st_size / 1000:.0f} kB")


def telling_session(api: Any, project: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the session whose rewards differ most, and the root of its longest trajectory that was right."""
    roots = {span["context"]["trace_id"]: span for span in api.spans(project, parent_id="null")}

    def variety(session: dict[str, Any]) -> tuple[int, int]:
        spans = [roots[trace["trace_id"]]["attributes"] for trace in session["traces"]]
        return len({span.get("rollout.reward") for span in spans}), sum(span.get("rollout.turns", 0) for span in spans)

    session = max(api.sessions(project), key=lambda session: (len(session["traces"]) > 1, *variety(session)))
    chosen = [roots[trace["trace_id"]] for trace in session["traces"]]
    return session, max(
        chosen, key=lambda span: [span["attributes"].get(f"rollout.{key}", 0) for key in ("reward", "turns")]
    )


def main() -> None:
    """Start Phoenix, run the demo, take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    if shutil.which("chromium") is None:
        parser.error("chromium is not installed: apt-get install chromium")
    IMAGES.mkdir(parents=True, exist_ok=True)
    with Phoenix(ensure("phoenix")) as phoenix:
        run_demo(phoenix)
        (project,) = [name for name in phoenix.api.projects() if name != "default"]
        phoenix.api.wait_for_spans(project, SPANS_OF_THE_DEMO)
        phoenix.api.wait_until_quiet(project)
        session, root = telling_session(phoenix.api, project)
        pages = f"{phoenix.address}/projects/{session['project_id']}"
        trajectory = f"traces/{root['context']['trace_id']}"
        picture(f"{pages}/sessions/{session['id']}", IMAGES / "phoenix-session.png", width=1280, height=860)
        # Narrower, Phoenix shows the tree without indentation.
        picture(f"{pages}/{trajectory}", IMAGES / "phoenix-trajectory.png", width=1700, height=920)
        picture(f"{pages}/spans", IMAGES / "phoenix-trajectories.png", width=1500, height=800)


if __name__ == "__main__":
    main()
