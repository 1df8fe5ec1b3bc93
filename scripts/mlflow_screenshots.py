"""Take the documentation's pictures of the demo in MLflow: the trajectories of one step, and one of them.

    python scripts/mlflow_screenshots.py            # writes docs/images/mlflow-*.png

Runs the demo with a server as its backend, opens MLflow's own UI in its default view, filters its list of traces
as a user would (no address does), and takes the pictures.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "tests"), str(ROOT / "scripts")]

from browser import IMAGES, open_browser, open_page, take_picture  # noqa: E402 - found through the path set above
from environments import ensure  # noqa: E402
from servers.mlflow_server import Mlflow  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Page

# The UI's notes of having shown its hints, and of the assistant's panel, which opens itself on the first visit.
SEEN = {
    "mlflow.detectIssues.guidanceShown_v1": True,
    "mlflow.flagForReview.guidanceShown_v1": True,
    "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": True,
    "mlflow.assistant.panelOpen_v1": False,
}
STEP = "1"
ROWS = 50
"""On a page: all trajectories of one step."""


def run_demo(uri: str) -> None:
    """Run the demo into a tracking URI."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "MLFLOW_"))}
    environment |= {"MLFLOW_TRACKING_URI": uri, "MLFLOW_DISABLE_TELEMETRY": "true"}
    demo = [sys.executable, "-m", "otel_rollout.cli", "demo"]
    command = [*demo, "--backend", "mlflow", "--samples", "8", "--timeout", "250"]
    subprocess.run(command, env=environment, check=True, timeout=300)


def traces_of_step(address: str) -> tuple[str, list[Any]]:
    """Return the demo's experiment, and its trajectories of the step, as MLflow's client finds them."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(address)
    (experiment,) = [item for item in client.search_experiments() if item.name != "Default"]
    traces = client.search_traces(
        locations=[experiment.experiment_id], filter_string=f"tags.step = '{STEP}'", max_results=100
    )
    return experiment.experiment_id, list(traces)


def telling_trace(traces: list[Any]) -> str:
    """Return the longest trajectory that was right."""
    right = [
        trace
        for trace in traces
        if any(item.name == "reward" and item.feedback.value > 0 for item in trace.info.assessments)
    ]
    return str(max(right, key=lambda trace: len(trace.data.spans)).info.trace_id)


def filter_by_step(page: Page) -> set[str]:
    """Filter the list by the tag `step`, as a user would.

    Returns:
        The ids of the traces that the page then got from the server.
    """
    page.get_by_placeholder("Add a filter").click()
    page.keyboard.type(f"tag.step = '{STEP}'")
    with page.expect_response(
        lambda answer: (
            answer.url.endswith("/traces/search") and f"tags.step = '{STEP}'" in (answer.request.post_data or "")
        )
    ) as answer:
        page.keyboard.press("Enter")
    return {trace["trace_id"] for trace in answer.value.json()["traces"]}


def main() -> None:
    """Run the demo, start MLflow's UI, take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    with open_browser() as browser, Mlflow(ensure("mlflow_3_18")) as mlflow:
        run_demo(mlflow.address)
        experiment_id, traces = traces_of_step(mlflow.address)
        url = f"{mlflow.address}/#/experiments/{experiment_id}/traces?startTimeLabel=ALL"
        with open_page(browser, url, width=1600, height=900, storage=SEEN) as page:
            page.get_by_role("combobox", name="Rows per page").click()
            page.get_by_role("option", name=str(ROWS)).click()
            listed = filter_by_step(page)
            if listed != {trace.info.trace_id for trace in traces}:
                raise RuntimeError(f"the page lists {len(listed)} traces, and step {STEP} has {len(traces)}")
            page.get_by_text(f"{len(traces)} of ").wait_for()
            take_picture(page, IMAGES / "mlflow-trajectories.png")
        one = f"{url}&selectedEvaluationId={telling_trace(traces)}"
        with open_page(browser, one, width=1600, height=900, storage=SEEN) as page:
            page.get_by_text("Policy.generate").first.wait_for()
            take_picture(page, IMAGES / "mlflow-trajectory.png")


if __name__ == "__main__":
    main()
