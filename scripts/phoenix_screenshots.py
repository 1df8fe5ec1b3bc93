"""Take the documentation's pictures of the demo in Phoenix: trajectories, one of them, and a session.

    python scripts/phoenix_screenshots.py            # writes docs/images/phoenix-*.png

Starts a Phoenix of its own, runs the demo into it, and takes the pictures.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "tests"), str(ROOT / "scripts")]

from browser import IMAGES, open_browser, open_page, take_picture  # noqa: E402 - found through the path set above
from environments import ensure  # noqa: E402
from servers.phoenix_server import Phoenix  # noqa: E402

SPANS_OF_THE_DEMO = 200


def run_demo(phoenix: Phoenix) -> None:
    """Run the demo with Phoenix as its backend."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    environment["PHOENIX_COLLECTOR_ENDPOINT"] = phoenix.address
    arguments = ["demo", "--backend", "phoenix", "--steps", "1", "--samples", "8"]
    command = [sys.executable, "-m", "otel_rollout.cli", *arguments]
    subprocess.run(command, env=environment, check=True, timeout=300)


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
    with open_browser() as browser, Phoenix(ensure("phoenix")) as phoenix:
        run_demo(phoenix)
        (project,) = [name for name in phoenix.api.projects() if name != "default"]
        phoenix.api.wait_for_spans(project, SPANS_OF_THE_DEMO)
        phoenix.api.wait_until_quiet(project)
        session, root = telling_session(phoenix.api, project)
        pages = f"{phoenix.address}/projects/{session['project_id']}"
        with open_page(browser, f"{pages}/sessions/{session['id']}", width=1280, height=860) as page:
            page.get_by_text("Turn 01").first.wait_for()
            take_picture(page, IMAGES / "phoenix-session.png")
        # Narrower, Phoenix shows the tree without indentation.
        trajectory = f"{pages}/traces/{root['context']['trace_id']}"
        with open_page(browser, trajectory, width=1700, height=920) as page:
            page.get_by_text("Policy.generate").first.wait_for()
            take_picture(page, IMAGES / "phoenix-trajectory.png")
        with open_page(browser, f"{pages}/traces", width=1600, height=800) as page:
            page.get_by_text("s7 · r0").first.wait_for()
            take_picture(page, IMAGES / "phoenix-trajectories.png")


if __name__ == "__main__":
    main()
