"""Names that are nearly right."""

from __future__ import annotations

import pytest

from otel_rollout.settings import STANDARD_VARIABLES
from otel_rollout.text import closest, did_you_mean, unread_variables

KNOWN = [*STANDARD_VARIABLES, "MLFLOW_TRACKING_URI", "OTEL_ROLLOUT_SPOOL"]


@pytest.mark.parametrize(
    ("name", "meant"), [("ML-Flow", "mlflow"), ("mlfow", "mlflow"), ("Console", "console"), ("elsewhere", None)]
)
def test_the_closest_name(name: str, meant: str | None):
    """Case and punctuation don't count; a name that is far from all has no answer."""
    assert closest(name, ["console", "mlflow", "otlp"]) == meant


def test_the_end_of_a_message():
    """A near name becomes a question, none becomes nothing."""
    assert did_you_mean("mlfow", ["mlflow"]) == "; did you mean 'mlflow'?"
    assert did_you_mean("elsewhere", ["mlflow"]) == ""


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("OTEL_TRACE_EXPORTER", "OTEL_TRACES_EXPORTER"),
        ("OTEL_ROLOUT_SPOOL", "OTEL_ROLLOUT_SPOOL"),
        ("OTEL_EXPORTER_OTLP_ENDPIONT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        ("OTEL_EXPORTER_OLTP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        ("MLFLOW_TRACKING_URL", "MLFLOW_TRACKING_URI"),
    ],
)
def test_a_misspelt_variable(name: str, meant: str):
    """A letter too few or too many, another letter, or two swapped: the right variable is found."""
    assert unread_variables({name: "1", "OTEL_TRACES_EXPORTER": "otlp"}, KNOWN, "OTEL_ROLLOUT_") == {name: meant}


@pytest.mark.parametrize(
    "name",
    [
        "OTEL_LOGS_EXPORTER",
        "OTEL_METRICS_EXPORTER",
        "OTEL_BLRP_SCHEDULE_DELAY",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
        "MLFLOW_TRACKING_TOKEN",
        "PATH",
        "OTEL_MINE",
    ],
)
def test_other_variables_are_left_alone(name: str):
    """Variables of OpenTelemetry, of a backend and of anyone else are no misspelt ones."""
    assert unread_variables({name: "1"}, KNOWN, "OTEL_ROLLOUT_") == {}


@pytest.mark.parametrize(
    ("name", "meant"), [("OTEL_ROLLOUT_SPOOL_FOLDER", "OTEL_ROLLOUT_SPOOL"), ("OTEL_ROLLOUT_BACKEND", None)]
)
def test_a_variable_with_our_prefix(name: str, meant: str | None):
    """Nobody else reads such a variable: it is reported, however far from all that there are."""
    assert unread_variables({name: "1"}, KNOWN, "OTEL_ROLLOUT_") == {name: meant}
