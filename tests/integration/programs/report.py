"""What the scenario programs share: which project they trace into, and the report that the test reads."""

import json
import os
from pathlib import Path

import otel_rollout

PROJECT = os.environ["SCENARIO_PROJECT"]


def finish(*, timeout: float = 60.0) -> int:
    """Flush and shut down, write what otel-rollout says of it, and return the exit status."""
    flushed = otel_rollout.flush(timeout)
    otel_rollout.shutdown(timeout)
    report = {"flushed": flushed, "stats": otel_rollout.stats()}
    Path(os.environ["SCENARIO_REPORT"]).write_text(json.dumps(report, default=vars))
    return 0
