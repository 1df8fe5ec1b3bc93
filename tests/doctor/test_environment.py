"""What the doctor says of the environment."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import otel_rollout
import otel_rollout_console
import otel_rollout_file
import otel_rollout_mlflow
import otel_rollout_otlp
import otel_rollout_weave
from otel_rollout.doctor import read_environment, read_installation, shown_value
from otel_rollout.settings import SETTINGS, Setting

PACKAGES = (
    otel_rollout,
    otel_rollout_console,
    otel_rollout_file,
    otel_rollout_mlflow,
    otel_rollout_otlp,
    otel_rollout_weave,
)


def setting(name: str, environ: dict[str, str]):
    return next(one for one in read_environment((), environ).settings if one.name == name)


class TestSettings:
    """Every setting, with where its value comes from."""

    def test_every_setting_is_there(self):
        """Each row of the table of settings is reported, also those that nothing sets."""
        assert [one.name for one in read_environment((), {}).settings] == [row.name for row in SETTINGS]

    def test_a_default_is_called_one(self):
        """What nothing sets has its default, and says so."""
        found = setting("max_queue_bytes", {})

        assert (found.value, found.origin, found.fault) == ("256 MiB", "default", "")

    def test_a_variable_is_named(self):
        """A value names the variable that it was read from."""
        found = setting("max_queue_bytes", {"OTEL_ROLLOUT_MAX_QUEUE_BYTES": "64KiB"})

        assert (found.value, found.origin) == ("64 KiB", "OTEL_ROLLOUT_MAX_QUEUE_BYTES")

    @pytest.mark.parametrize(("value", "shown"), [("1536", "1536"), ("2KiB", "2 KiB"), ("10240MiB", "10 GiB")])
    def test_sizes_are_in_the_largest_unit_that_fits(self, value, shown):
        """A size is shown as it would be written, without a remainder."""
        assert setting("max_batch_bytes", {"OTEL_ROLLOUT_MAX_BATCH_BYTES": value}).value == shown

    def test_a_count_is_no_size(self):
        """A number of spans or milliseconds is shown as a number, whatever it can be divided by."""
        environ = {"OTEL_BSP_MAX_QUEUE_SIZE": "2048", "OTEL_BSP_SCHEDULE_DELAY": "1024"}
        assert setting("max_queue_spans", environ).value == "2048"
        assert setting("schedule_delay_ms", environ).value == "1024"

    def test_each_wrong_value_is_reported(self):
        """Two values that can't work are two faults with the texts that `init` would raise; it stops at the first."""
        environ = {"OTEL_ROLLOUT_MAX_BATCH_BYTES": "lots", "OTEL_ROLLOUT_SET_GLOBAL": "perhaps"}

        found = read_environment((), environ)

        faults = [one.fault for one in found.settings if one.fault]
        assert len(faults) == 2
        assert faults[0].startswith("OTEL_ROLLOUT_MAX_BATCH_BYTES='lots': this should be")
        assert faults[1].startswith("OTEL_ROLLOUT_SET_GLOBAL='perhaps': this should be")
        assert not found.is_sound


class TestVariables:
    """The variables of OpenTelemetry and of the exporters."""

    def test_those_that_are_set_are_reported(self):
        """A variable of OpenTelemetry and one of an exporter are shown with their meaning, those unset are not."""
        environ = {"OTEL_SERVICE_NAME": "trainer", "MLFLOW_TRACKING_URI": "http://mlflow:5000", "HOME": "/root"}

        found = read_environment([Setting("MLFLOW_TRACKING_URI", str, None, "the server")], environ).variables

        assert [(one.name, one.value) for one in found] == [
            ("OTEL_SERVICE_NAME", "trainer"),
            ("MLFLOW_TRACKING_URI", "http://mlflow:5000"),
        ]
        assert found[1].meaning == "the server"

    def test_the_variant_for_traces_alone_is_reported_too(self):
        """OTEL_EXPORTER_OTLP_TRACES_HEADERS counts as OTEL_EXPORTER_OTLP_HEADERS does, and is as secret."""
        rows = read_installation().settings
        (found,) = read_environment(rows, {"OTEL_EXPORTER_OTLP_TRACES_HEADERS": "x-key=abc"}).variables

        assert (found.name, found.value) == ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-key=(hidden)")

    @pytest.mark.parametrize(
        ("variable", "meant"),
        [
            ("OTEL_ROLLOUT_MAX_QUEU_BYTES", "OTEL_ROLLOUT_MAX_QUEUE_BYTES"),
            ("OTEL_ROLLOUT_REDACT_KEY", "OTEL_ROLLOUT_REDACT_KEYS"),
            ("OTEL_ROLLOUT_WEAVE_ASKFIRST", "OTEL_ROLLOUT_WEAVE_ASK_FIRST"),
            ("OTEL_ROLOUT_SPOOL", "OTEL_ROLLOUT_SPOOL"),
            ("OTEL_TRACE_EXPORTER", "OTEL_TRACES_EXPORTER"),
            ("OTEL_EXPORTER_OTLP_ENDPIONT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
            ("MLFLOW_TRACKING_URL", "MLFLOW_TRACKING_URI"),
        ],
    )
    def test_a_misspelt_name_is_found(self, variable, meant):
        """A variable that nothing reads is a fault that names the nearest one that something reads."""
        rows = [Setting(name, str, None, "") for name in ("OTEL_ROLLOUT_WEAVE_ASK_FIRST", "MLFLOW_TRACKING_URI")]
        found = read_environment(rows, {variable: "1"})

        assert found.faults == [f"{variable}: nothing reads this variable; did you mean {meant}?"]
        assert not found.is_sound

    def test_no_variable_of_ours_is_unknown(self):
        """Every name that stands in our code is one that the doctor knows: none of them is called misspelt."""
        code = [path for package in PACKAGES for path in Path(package.__file__).parent.rglob("*.py")]
        names = {name for path in code for name in re.findall(r"OTEL_ROLLOUT_[A-Z0-9_]*[A-Z0-9]", path.read_text())}
        assert "OTEL_ROLLOUT_DIR" in names

        found = read_environment(read_installation().settings, dict.fromkeys(names, ""))

        assert found.faults == []

    def test_a_sampler_that_is_not_there_is_a_fault(self, monkeypatch):
        """A wrong OTEL_TRACES_SAMPLER is reported with what is done about it."""
        (fault,) = read_environment((), {"OTEL_TRACES_SAMPLER": "allways_on"}).faults
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "allways_on")

        assert read_environment((), {}).faults == []
        assert read_environment(()).faults == [fault]
        assert fault.startswith("OTEL_TRACES_SAMPLER='allways_on' is ignored: there is no such sampler")

    def test_a_ratio_that_is_none_is_a_fault(self):
        """Of the SDK's samplers as of ours."""
        for sampler in ("traceidratio", "rollout_sample_ratio"):
            (fault,) = read_environment((), {"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": "half"}).faults
            assert fault.startswith("OTEL_TRACES_SAMPLER_ARG='half' is ignored")

    def test_a_variable_of_opentelemetrys_that_is_ignored_is_a_fault(self):
        """The setting has its default then, and the fault says why."""
        found = {one.name: one for one in read_environment((), {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "many"}).settings}

        one = found["max_batch_spans"]
        assert (one.value, one.origin) == ("512", "default")
        assert one.fault == "OTEL_BSP_MAX_EXPORT_BATCH_SIZE='many' is ignored: this should be a positive whole number"

    @pytest.mark.parametrize(
        ("variable", "fault"),
        [
            ("OTEL_ROLLOUT_WEAVE_ASK_FIRST", "OTEL_ROLLOUT_WEAVE_ASK_FIRST='soon': this should be true or false"),
            ("WEAVE_HTTP_TIMEOUT", "WEAVE_HTTP_TIMEOUT='soon' is ignored: this should be a positive number of seconds"),
        ],
    )
    def test_a_wrong_value_in_a_variable_of_an_exporter_is_a_fault(self, variable, fault):
        """The fault names the variable, its value and what would be right."""
        assert read_environment(read_installation().settings, {variable: "soon"}).faults == [fault]

    @pytest.mark.parametrize(
        ("value", "is_disabled"), [("true", True), (" TRUE ", True), ("false", False), ("", False)]
    )
    def test_tracing_that_is_switched_off_is_seen(self, value, is_disabled):
        """OTEL_SDK_DISABLED is read as `init` reads it, and is no sound environment."""
        found = read_environment((), {"OTEL_SDK_DISABLED": value})
        assert found.is_disabled is is_disabled
        assert found.is_sound is not is_disabled


class TestSecrets:
    """What is not shown."""

    @pytest.mark.parametrize(
        "variable", ["WANDB_API_KEY", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD", "SOME_CLIENT_SECRET"]
    )
    def test_keys_and_passwords_are_hidden(self, variable):
        """Of a secret only the length is told, which shows a key that was cut short."""
        assert shown_value(variable, "s3cret") == "(hidden, 6 characters)"

    def test_headers_keep_their_names(self):
        """Of a header the name is shown; a pair without a name is hidden whole, because it may be the secret."""
        shown = shown_value("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer s3cret,s3cret,x-team=s3cret")

        assert shown == "authorization=(hidden), (hidden), x-team=(hidden)"

    def test_a_url_loses_its_password_and_its_query(self):
        """A URL is shown without user, password and query."""
        assert shown_value("MLFLOW_TRACKING_URI", "https://me:s3cret@host/x?key=s3cret") == "https://host/x?(hidden)"

    def test_an_endpoint_without_a_scheme_loses_its_password(self):
        """A host and port for gRPC may have a password before it too."""
        assert shown_value("OTEL_EXPORTER_OTLP_ENDPOINT", "me:s3cret@host:4317") == "host:4317"

    @pytest.mark.parametrize("password", ["s3@cret", "s3/cret", "s3?cret", "s3@cr/et", "s3@cr?et", "s3:c@r#et"])
    def test_a_password_that_is_not_percent_encoded(self, password):
        """No part of it is shown, whatever letters it has."""
        shown = shown_value("MLFLOW_TRACKING_URI", f"postgresql://me:{password}@host/traces")
        assert shown.replace("(hidden)@", "") == "postgresql://host/traces"
        shown = shown_value("OTEL_EXPORTER_OTLP_ENDPOINT", f"me:{password}@host:4317")
        assert shown.replace("(hidden)@", "") == "host:4317"

    def test_a_file_of_a_key_is_no_secret(self):
        """The path of a key's file is shown: it is what one looks for."""
        assert shown_value("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/etc/key.pem") == "/etc/key.pem"


def test_secrets_in_resource_attributes() -> None:
    """A secret among the attributes of the resource is not printed; the others are."""
    shown = shown_value("OTEL_RESOURCE_ATTRIBUTES", "team=a,api_key=hT9dkQ2mZx81vbLw,service.name=x")
    assert "hT9dkQ2mZx81vbLw" not in shown
    assert "team=a" in shown
    assert "service.name=x" in shown
