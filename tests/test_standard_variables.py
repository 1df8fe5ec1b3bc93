"""OpenTelemetry's variables: a value that can't work is ignored with a warning, or fails `init`."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import opentelemetry.environment_variables
import opentelemetry.sdk.environment_variables
import pytest
from opentelemetry.sdk.trace.sampling import DEFAULT_ON

import otel_rollout
import otel_rollout_file
from otel_rollout import init
from otel_rollout.backends import factory_of
from otel_rollout.errors import ConfigurationError
from otel_rollout.export.exporter import settings_of
from otel_rollout.record import runtime
from otel_rollout.settings import OURS, VARIABLES, read_text
from otel_rollout_otlp import OtlpHttpSpanExporter

KNOWN = {*VARIABLES, *(name for row in OtlpHttpSpanExporter.variables for name in row.variables)}
OF_OPENTELEMETRY = {
    name
    for module in (opentelemetry.environment_variables, opentelemetry.sdk.environment_variables)
    for name in vars(module)
    if name.startswith("OTEL_")
}
EXPORTERS = ("file", "mlflow", "phoenix", "trackio", "weave")
ADDRESSES = {
    "MLFLOW_TRACKING_URI": "http://localhost:1",
    "TRACKIO_SERVER_URL": "http://localhost:1",
    "TRACKIO_WRITE_TOKEN": "token",
}
OF_EXPORTERS = [(name, row) for name in EXPORTERS for row in settings_of(factory_of(name))]


def setting(name: str) -> Callable[[], Any]:
    return lambda: getattr(pipeline().settings, name)


def pipeline() -> Any:
    assert runtime.pipeline is not None
    return runtime.pipeline


def exporter() -> Any:
    [queue] = pipeline().queues
    return queue.exporter


def sampler() -> str:
    return str(pipeline().tracer._sampler.get_description())


def bound(name: str) -> Callable[[], Any]:
    return lambda: getattr(pipeline().tracer._bounds, name)


def resource() -> Any:
    return pipeline().reader.resource.attributes


IGNORED: dict[str, tuple[list[str], Callable[[], Any], Any]] = {
    "OTEL_BSP_MAX_QUEUE_SIZE": (["abc", "0", "-1", "1.5", "inf"], setting("max_queue_spans"), None),
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": (["abc", "0", "-1"], setting("max_batch_spans"), 512),
    "OTEL_BSP_SCHEDULE_DELAY": (["abc", "-1", "inf", "nan"], setting("schedule_delay_ms"), 1000.0),
    "OTEL_TRACES_SAMPLER": (["nonsense", "xray"], sampler, DEFAULT_ON.get_description()),
    "OTEL_EXPORTER_OTLP_PROTOCOL": (
        ["http/json", "nonsense"],
        lambda: type(exporter()).__name__,
        "OtlpHttpSpanExporter",
    ),
    "OTEL_EXPORTER_OTLP_TIMEOUT": (["abc", "0", "-1", "inf"], lambda: exporter()._client.timeout, 10.0),
    "OTEL_EXPORTER_OTLP_COMPRESSION": (["br", "1"], lambda: exporter()._sender.compression, "none"),
    "OTEL_EXPORTER_OTLP_HEADERS": (["abc", "=b", "a=b,c"], lambda: exporter()._headers.get("c"), None),
    "OTEL_EXPORTER_OTLP_INSECURE": (["maybe"], lambda: True, True),
    "OTEL_ATTRIBUTE_COUNT_LIMIT": (["abc", "-1", "1.5"], bound("attributes"), 128),
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": (["abc", "-1"], bound("attributes"), 128),
    "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT": (["abc", "-1"], bound("event_attributes"), 128),
    "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT": (["abc", "-1"], bound("link_attributes"), 128),
    "OTEL_SPAN_EVENT_COUNT_LIMIT": (["abc", "-1"], bound("events"), 128),
    "OTEL_SPAN_LINK_COUNT_LIMIT": (["abc", "-1"], bound("links"), 128),
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": (["abc", "-1"], bound("other_characters"), None),
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": (["abc", "-1"], bound("characters"), None),
    "OTEL_SDK_DISABLED": (["1", "yes"], lambda: runtime.pipeline is None, False),
    "OTEL_BSP_EXPORT_TIMEOUT": (["soon", "-1"], lambda: True, True),
    "OTEL_RESOURCE_ATTRIBUTES": (["abc", "a=b,c"], lambda: "c" in resource(), False),
}
"""Values that can't work, where the value in force shows, and what it is: the default."""

STRICT = {
    "OTEL_TRACES_EXPORTER": ["nonsense", "otlp,nonsense", "none,otlp"],
    "OTEL_EXPORTER_OTLP_ENDPOINT": ["localhost:4318", "nonsense", "http://"],
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": ["localhost:4318", "ftp://localhost"],
    "OTEL_EXPORTER_OTLP_CERTIFICATE": ["/no/such/file"],
    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": ["/no/such/file"],
    "OTEL_EXPORTER_OTLP_CLIENT_KEY": ["/no/such/file"],
}
"""Values with which nothing could arrive."""

OWN = {
    "OTEL_ROLLOUT_TOKEN2TEXT": ["maybe"],
    "OTEL_ROLLOUT_MAX_SAMPLES_PER_STEP_PER_WORKER": ["-1", "few"],
    "OTEL_ROLLOUT_MAX_QUEUE_BYTES": ["0", "much"],
    "OTEL_ROLLOUT_MAX_SPOOL_BYTES": ["-1"],
    "OTEL_ROLLOUT_MAX_BATCH_BYTES": ["4 boxes"],
    "OTEL_ROLLOUT_SHUTDOWN_TIMEOUT_MS": ["-1", "soon", "inf"],
    "OTEL_ROLLOUT_MAX_PAYLOAD_BYTES": ["1e999"],
    "OTEL_ROLLOUT_CHAT_MESSAGES": ["perhaps"],
    "OTEL_ROLLOUT_REDACT_KEYS": [","],
    "OTEL_ROLLOUT_REDACT_PATTERNS": ["("],
    "OTEL_ROLLOUT_SET_GLOBAL": ["2"],
}
"""Our own variables are strict."""

NOT_OF_TRACES = re.compile(
    r"OTEL_(BLRP|LOGS|LOGRECORD|METRICS?|EXPORTER_(ZIPKIN|PROMETHEUS|OTLP_(LOGS|METRICS)))_"
    r"|OTEL_PYTHON_|OTEL_(CONFIG_FILE|LOG_LEVEL|PROPAGATORS|EXPERIMENTAL_RESOURCE_DETECTORS)$"
)
"""What the SDK alone reads: other signals, its own parts."""

ANY_TEXT = {
    "OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS": "set or not, for tests",
    "OTEL_ROLLOUT_RUN_ID": "any text is an id",
    "OTEL_ROLLOUT_SPOOL": "any text is a folder's name",
}

OF_OTHERS = {
    "OTEL_ROLLOUT_DIR",
    "OTEL_ROLLOUT_DIR_MAX_BYTES",
    "OTEL_ROLLOUT_VERL",
    "OTEL_ROLLOUT_RECEIVE_TOKEN",
}
"""Variables of commands and hooks."""

MISSPELT: dict[str, Callable[[str], str]] = {
    "a letter is missing": lambda name: name[:-3] + name[-2:],
    "two are swapped": lambda name: name[:5] + name[6] + name[5] + name[7:],
    "a letter is doubled": lambda name: name[:8] + name[7:],
    "the plural": lambda name: f"{name}S",
    "the prefix": lambda name: name.replace("OTEL", "OTLE", 1),
}
"""Ways to misspell a variable."""
WAYS = [
    pytest.param(misspell, id=way, marks=[] if way == "two are swapped" else pytest.mark.slow)
    for way, misspell in MISSPELT.items()
]

ANYTHING = {
    "OTEL_SERVICE_NAME": "any text is a name",
    "OTEL_TRACES_SAMPLER_ARG": "tried with each sampler below",
}


def with_traces(variables: dict[str, Any]) -> list[tuple[str, str]]:
    """Return each variable with each of its values, and the variable for traces alone where there is one."""
    pairs = []
    for variable, row in variables.items():
        for value in row[0] if isinstance(row, tuple) else row:
            pairs.append((variable, value))
            if variable.startswith("OTEL_EXPORTER_OTLP_") and "_TRACES_" not in variable:
                pairs.append((variable.replace("OTLP_", "OTLP_TRACES_"), value))
    return pairs


class TestEveryVariable:
    """The tables of this file."""

    def test_each_is_in_a_table(self):
        """Whatever we read of OpenTelemetry's variables, and of our own, is tried here with values that can't work."""
        tried = {*IGNORED, *STRICT, *ANYTHING, *OWN, *ANY_TEXT}

        assert {name.replace("_OTLP_TRACES_", "_OTLP_") for name in KNOWN} == tried - {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
        }

    def test_each_of_opentelemetry_is_in_a_table(self):
        """Its list has no other variable that is about traces."""
        assert {name for name in OF_OPENTELEMETRY if not NOT_OF_TRACES.match(name)} <= KNOWN

    def test_each_of_ours_is_known(self):
        """A name with our prefix in the source is one that `init` knows, or an exporter in use."""
        known = {*VARIABLES, *OF_OTHERS, *(name for _, row in OF_EXPORTERS for name in row.variables)}
        sources = [
            path for package in (otel_rollout, otel_rollout_file) for path in Path(package.__path__[0]).rglob("*.py")
        ]

        named = {
            name for path in sources for name in re.findall(r"OTEL_ROLLOUT_[A-Z0-9_]*[A-Z0-9]", path.read_text("utf-8"))
        }

        assert named <= known

    @pytest.mark.parametrize("misspell", WAYS)
    def test_a_wrong_name_of_opentelemetrys_list(self, monkeypatch, caplog, misspell):
        """The variables of other signals have their answers too."""
        others = OF_OPENTELEMETRY - KNOWN
        wrong = {misspell(name): name for name in others if misspell(name) not in OF_OPENTELEMETRY}
        for name in wrong:
            monkeypatch.setenv(name, "1")

        init("project", "experiment", backend="otlp")

        assert {text.partition(":")[0] for text in caplog.messages} == {*wrong}

    @pytest.mark.parametrize(
        ("exporter", "variable"), [(exporter, name) for exporter, row in OF_EXPORTERS for name in row.variables]
    )
    def test_a_wrong_name_of_an_exporters_variable(self, monkeypatch, caplog, exporter, variable):
        """It is asked about where the exporter is in use."""
        for name, value in ADDRESSES.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv(f"{variable[:-2]}{variable[-1]}{variable[-2]}", "1")

        init("project", "experiment", backend=exporter)

        assert caplog.messages[-1].endswith(f": nothing reads this variable; did you mean {variable}?")

    @pytest.mark.parametrize(
        ("exporter", "variable"),
        [
            (exporter, name)
            for exporter, row in OF_EXPORTERS
            for name in row.variables
            if row.read not in (str, read_text)
        ],
    )
    def test_a_wrong_value_of_an_exporters_variable(self, monkeypatch, caplog, exporter, variable):
        """It is an error of `init` if the variable is ours, else one warning."""
        for name, value in ADDRESSES.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv(variable, "maybe?")
        if variable.startswith(OURS):
            with pytest.raises(ConfigurationError, match=f"^{variable}='maybe\\?': this should be "):
                init("project", "experiment", backend=exporter)
        else:
            init("project", "experiment", backend=exporter)
            assert [text for text in caplog.messages if variable in text] == caplog.messages[:1]

    def test_variables_of_commands_and_tests_are_left_alone(self, monkeypatch, caplog):
        """They may be set in a traced process too."""
        for name in OF_OTHERS:
            monkeypatch.setenv(name, "1")

        init("project", "experiment", backend="otlp")

        assert caplog.messages == []

    def test_a_name_of_another_exporter_is_left_alone(self, monkeypatch, caplog):
        """Processes share an environment, and each uses other backends; what no exporter is called is reported."""
        monkeypatch.setenv("OTEL_ROLLOUT_MLFLOW_SOMETHING", "1")
        monkeypatch.setenv("OTEL_ROLLOUT_SAMPLE_RATIO", "0.1")

        init("project", "experiment", backend="otlp")

        assert [text.partition(";")[0] for text in caplog.messages] == [
            "OTEL_ROLLOUT_SAMPLE_RATIO: nothing reads this variable"
        ]

    @pytest.mark.parametrize("misspell", WAYS)
    def test_a_wrong_name_is_answered_with_the_right_one(self, monkeypatch, caplog, misspell):
        """Each variable, those for traces alone too, is named in the warning of one that nothing reads."""
        wrong = {misspell(name): name for name in KNOWN if misspell(name) not in KNOWN}
        for name in wrong:
            monkeypatch.setenv(name, "1")

        init("project", "experiment", backend="otlp")

        assert len(wrong) == len(KNOWN)
        assert sorted(caplog.messages) == sorted(
            f"{name}: nothing reads this variable; did you mean {right}?" for name, right in wrong.items()
        )


class TestIgnored:
    """Numbers, names, headers."""

    @pytest.mark.parametrize(("variable", "value"), with_traces(IGNORED))
    def test_a_value_that_cannot_work(self, monkeypatch, caplog, variable, value):
        """`init` warns once, naming the variable or its value, and goes by the default."""
        monkeypatch.setenv(variable, value)

        with caplog.at_level(logging.WARNING):
            init("project", "experiment", backend="otlp")

        _, in_force, expected = IGNORED[variable.replace("_TRACES_", "_") if "OTLP" in variable else variable]
        assert in_force() == expected
        if "INSECURE" in variable:
            return  # Read for gRPC alone, see tests/exporters/otlp.
        said = {record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING}
        assert len(said) == 1
        assert any(variable in text or value.rpartition(",")[2] in text for text in said)

    def test_a_misspelt_sampler(self, monkeypatch, caplog):
        """The warning asks for the sampler that is meant."""
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "rollout_ratio")

        init("project", "experiment", backend="otlp")

        assert caplog.messages == [
            (
                "OTEL_TRACES_SAMPLER='rollout_ratio' is ignored: there is no such sampler; did you mean "
                "'rollout_sample_ratio'?"
            )
        ]

    def test_an_argument_without_a_sampler(self, monkeypatch, caplog):
        """A ratio alone drops nothing, and the warning names the variable that is missing."""
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.1")

        init("project", "experiment", backend="otlp")

        assert sampler() == DEFAULT_ON.get_description()
        assert caplog.messages == [
            (
                "OTEL_TRACES_SAMPLER_ARG='0.1' is ignored: OTEL_TRACES_SAMPLER is not set, such as "
                "OTEL_TRACES_SAMPLER=rollout_sample_ratio for a share of the prompts"
            )
        ]

    @pytest.mark.parametrize("name", ["traceidratio", "parentbased_traceidratio", "rollout_sample_ratio"])
    @pytest.mark.parametrize("argument", ["x", "2", "-1", "nan"])
    def test_a_ratio_that_is_none(self, monkeypatch, caplog, name, argument):
        """Every trajectory is traced, after a warning."""
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", name)
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", argument)

        init("project", "experiment", backend="otlp")

        assert "1.0" in sampler() or sampler() == DEFAULT_ON.get_description()
        (warning,) = caplog.messages
        assert warning.startswith(f"OTEL_TRACES_SAMPLER_ARG={argument!r} is ignored")

    def test_a_value_for_all_signals_counts_where_that_for_traces_is_ignored(self, monkeypatch):
        """The next variable that says something is asked."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "soon")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "7")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "br")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "GZIP")

        init("project", "experiment", backend="otlp")

        assert (exporter()._client.timeout, exporter()._sender.compression) == (7.0, "gzip")

    def test_the_other_headers_are_sent(self, monkeypatch, caplog):
        """A pair that is none is left out, and not shown: it may be a secret."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "a=1,hunter2,b=2%2C3")

        init("project", "experiment", backend="otlp")

        assert exporter()._headers == {"a": "1", "b": "2,3"}
        [warning] = [record.getMessage() for record in caplog.records if "HEADERS" in record.getMessage()]
        assert warning.startswith("OTEL_EXPORTER_OTLP_HEADERS: pair 2 is ignored: this should be name=value")
        assert "hunter2" not in warning


class TestValid:
    """Values at the edge that the specification allows."""

    @pytest.mark.parametrize(
        ("variable", "in_force", "expected"),
        [
            ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", bound("characters"), 0),
            ("OTEL_SPAN_EVENT_COUNT_LIMIT", bound("events"), 0),
            ("OTEL_BSP_SCHEDULE_DELAY", setting("schedule_delay_ms"), 0.0),
        ],
    )
    def test_zero(self, monkeypatch, caplog, variable, in_force, expected):
        """Zero is a number like any other."""
        monkeypatch.setenv(variable, "0")

        init("project", "experiment", backend="otlp")

        assert (in_force(), caplog.messages) == (expected, [])


class TestStrict:
    """Settings with which no span could arrive, and our own."""

    @pytest.mark.parametrize(("variable", "value"), [*with_traces(STRICT), *with_traces(OWN)])
    def test_init_fails(self, monkeypatch, variable, value):
        """`init` raises an error that names what was wrong."""
        monkeypatch.setenv(variable, value)
        backend = None if variable == "OTEL_TRACES_EXPORTER" else "otlp"

        with pytest.raises(ConfigurationError) as caught:
            init("project", "experiment", backend=backend)

        assert variable in str(caught.value) or "nonsense" in str(caught.value)


class TestShutdownTimeout:
    """How long the process waits at its end."""

    def test_is_not_the_limit_of_one_export(self, monkeypatch):
        """`OTEL_BSP_EXPORT_TIMEOUT` is another thing: who makes one export fail fast does not shorten the end."""
        monkeypatch.setenv("OTEL_BSP_EXPORT_TIMEOUT", "1")

        init("project", "experiment", backend="otlp")

        assert pipeline().seconds == 30.0

    def test_has_a_variable_of_its_own(self, monkeypatch):
        """`OTEL_ROLLOUT_SHUTDOWN_TIMEOUT_MS` sets it."""
        monkeypatch.setenv("OTEL_ROLLOUT_SHUTDOWN_TIMEOUT_MS", "1500")

        init("project", "experiment", backend="otlp")

        assert pipeline().seconds == 1.5
