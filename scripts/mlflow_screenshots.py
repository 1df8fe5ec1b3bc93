"""Take the documentation's pictures of the demo in MLflow: its trajectories, and one of them.

    python scripts/mlflow_screenshots.py            # writes docs/images/mlflow-*.png

Runs the demo into a sqlite file, opens MLflow's own UI over it, and takes the pictures with Debian's chromium,
headless.
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "tests"), str(ROOT / "scripts")]

from environments import ensure  # noqa: E402 - found through the path set above
from servers.mlflow_server import Mlflow  # noqa: E402

IMAGES = ROOT / "docs" / "images"
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
    "--virtual-time-budget=30000",
]
COLOURS = 128
"""Of the palette: screenshots need few, and a picture with a palette is a third of the size."""


# What the UI keeps of having shown its hints, and of the assistant's panel, which opens itself on the first visit.
SEEN = {
    "mlflow.detectIssues.guidanceShown_v1": True,
    "mlflow.flagForReview.guidanceShown_v1": True,
    "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": True,
    "mlflow.assistant.panelOpen_v1": False,
}
START_PAGE = "/otel-rollout-start"


class Front(http.server.BaseHTTPRequestHandler):
    """Hands requests on to MLflow, but for one page, which fills the storage and shows the real one."""

    mlflow = ""

    def do_GET(self) -> None:
        """Answer with the start page, or with what MLflow answers."""
        if self.path.startswith(START_PAGE):
            script = "".join(f"localStorage.setItem({key!r},{json.dumps(value)!r});" for key, value in SEEN.items())
            page = (
                "<style>*{margin:0;border:0}iframe{width:100vw;height:100vh;display:block}</style>"
                f"<iframe id=ui></iframe><script>{script}"
                "ui.src = decodeURIComponent(location.search.slice(1))</script>"
            ).encode()
            self.reply(200, {"Content-Type": "text/html"}, page)
        else:
            self.hand_on(None)

    def do_POST(self) -> None:
        """Answer with what MLflow answers."""
        self.hand_on(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def hand_on(self, body: bytes | None) -> None:
        """Ask MLflow and reply with its answer."""
        headers = {"Content-Type": self.headers.get("Content-Type") or "application/json"}
        answer = requests.request(self.command, self.mlflow + self.path, data=body, headers=headers, timeout=60)
        self.reply(answer.status_code, {"Content-Type": answer.headers.get("Content-Type", "")}, answer.content)

    def reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Send an answer."""
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(BrokenPipeError):
            self.wfile.write(body)

    def log_message(self, *unused: object) -> None:
        """Say nothing."""


def run_demo(uri: str) -> None:
    """Run the demo into a tracking URI."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "MLFLOW_"))}
    environment |= {"MLFLOW_TRACKING_URI": uri, "MLFLOW_DISABLE_TELEMETRY": "true"}
    command = [sys.executable, "-m", "otel_rollout.cli", "demo", "--backend", "mlflow", "--samples", "8"]
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


def telling_trace(address: str) -> tuple[str, Any]:
    """Return the demo's experiment, and the longest of its trajectories that was right."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(address)
    (experiment,) = [item for item in client.search_experiments() if item.name != "Default"]
    traces = client.search_traces(
        locations=[experiment.experiment_id], filter_string="tags.step = '1' AND feedback.reward > 0.5", max_results=100
    )
    return experiment.experiment_id, max(traces, key=lambda trace: len(trace.data.spans))


def main() -> None:
    """Run the demo, start MLflow's UI, take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    if shutil.which("chromium") is None:
        parser.error("chromium is not installed: apt-get install chromium")
    IMAGES.mkdir(parents=True, exist_ok=True)
    with Mlflow(ensure("mlflow")) as mlflow:
        run_demo(f"sqlite:///{mlflow.database}")
        experiment_id, trace = telling_trace(mlflow.address)
        Front.mlflow = mlflow.address
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Front) as front:
            threading.Thread(target=front.serve_forever, daemon=True).start()
            start = f"http://127.0.0.1:{front.server_address[1]}{START_PAGE}?"
            traces = f"#/experiments/{experiment_id}/traces?startTimeLabel=ALL"
            picture(start + quote(f"/{traces}", safe=""), IMAGES / "mlflow-trajectories.png", width=1500, height=760)
            one = quote(f"/{traces}&selectedEvaluationId={trace.info.trace_id}", safe="")
            picture(start + one, IMAGES / "mlflow-trajectory.png", width=1300, height=760)
            front.shutdown()


if __name__ == "__main__":
    main()
