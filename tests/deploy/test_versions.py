"""The versions that docker-compose.yml starts are the ones that the tests run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from otel_rollout import __version__
from otel_rollout.cli.main import parse
from tests.deploy.collector_config import load

ROOT = Path(__file__).resolve().parents[2]
IMAGES = {
    name: service["image"].rpartition(":")
    for name, service in yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"].items()
}
PARTS, FOLDER_PARTS, (EXPORT,) = (
    list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / f"{name}.yaml").read_text(encoding="utf-8")))
    for name in ("collectors", "folder", "export")
)


def pinned(environment, package):
    """Return the version of a package that an environment of tests/servers pins."""
    text = (ROOT / "tests" / "servers" / f"{environment}.txt").read_text(encoding="utf-8")
    (version,) = re.findall(rf"^{package}==(\S+)$", text, re.MULTILINE)
    return version


class TestVersions:
    """Image tags."""

    def test_phoenix_and_mlflow_are_the_tested_ones(self):
        """Phoenix and MLflow have the versions that tests/servers pins."""
        assert IMAGES["phoenix"][2] == f"version-{pinned('phoenix', 'arize-phoenix')}"
        assert IMAGES["mlflow"][2] == f"v{pinned('mlflow', 'mlflow')}"

    @pytest.mark.parametrize("name", IMAGES)
    def test_every_image_has_a_whole_version(self, name):
        """No image has a tag that changes its meaning, such as latest or 0.159."""
        assert re.fullmatch(r"(v|version-)?\d+\.\d+\.\d+", IMAGES[name][2])

    def test_receiver_has_the_version_of_this_checkout(self):
        """The image of the receiver has the version that this checkout has, wherever it is named."""
        kubernetes = ROOT / "deploy" / "kubernetes"
        names = [ROOT / "deploy" / "receiver" / "Dockerfile", kubernetes / "folder.yaml", kubernetes / "export.yaml"]
        text = "".join(path.read_text(encoding="utf-8") for path in names)

        assert IMAGES["receiver"][2] == __version__
        assert set(re.findall(r"otel-rollout:([\d.]+)", text)) == {__version__}

    def test_one_version_of_the_collector_and_of_jaeger(self):
        """Wherever the collector or Jaeger is named with a version, it is the one of docker-compose.yml."""
        files = [*(ROOT / "deploy").rglob("*.yaml"), *(ROOT / "docs").rglob("*.md")]
        text = "\n".join(path.read_text(encoding="utf-8") for path in files)
        (collector,) = {tag for image, _, tag in IMAGES.values() if image == "otel/opentelemetry-collector-contrib"}
        named = r"(?:otelcol-contrib|opentelemetry-collector-contrib)[: ]v?(\d+\.\d+\.\d+)"

        assert set(re.findall(named, text)) == {collector}
        assert set(re.findall(r"[Jj]aeger[: ]v?(\d+\.\d+\.\d+)", text)) == {IMAGES["jaeger"][2]}


class TestKubernetes:
    """deploy/kubernetes/collectors.yaml against what it uses."""

    def containers(self):
        """Return the container of each workload, by the workload's name."""
        workloads = [part["spec"]["template"]["spec"] for part in PARTS if "template" in part["spec"]]
        return [(spec, spec["containers"][0]) for spec in workloads]

    def test_configurations_are_files_of_the_folder(self):
        """Each workload starts with a file of deploy/collector, which its volume holds."""
        for spec, container in self.containers():
            mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
            first = container["args"][0].removeprefix("--config=")

            assert (ROOT / "deploy" / "collector" / Path(first).name).exists()
            assert first.startswith(mounts["config"])
            assert {"name": "config", "configMap": {"name": "collector"}} in spec["volumes"]
            assert mounts["queue"] == "/var/lib/otelcol"

    def test_every_variable_of_a_configuration_without_default_is_set(self):
        """Each workload has the variables that its configuration has no default for, and none that it never reads."""
        for _, container in self.containers():
            name = Path(container["args"][0]).name
            text = (ROOT / "deploy" / "collector" / name).read_text(encoding="utf-8")
            given = {variable["name"] for variable in container["env"]} - {"GOMEMLIMIT"}
            read = set(re.findall(r"\$\{env:(\w+)", text)) | set(re.findall(r"\$\((\w+)\)", str(container["args"])))
            needed = set(re.findall(r"\$\{env:(\w+)\}", text))

            assert needed <= given <= read

    def test_selectors_ports_and_the_gateways_name_agree(self):
        """Labels select what they are meant to, probes ask the health check, agents send to the gateway's service."""
        for part in PARTS:
            if "template" in part["spec"]:
                assert part["spec"]["selector"]["matchLabels"] == part["spec"]["template"]["metadata"]["labels"]
        (service,) = (part for part in PARTS if part["kind"] == "Service")
        (gateway,) = (part for part in PARTS if part["kind"] == "StatefulSet")
        assert service["spec"]["selector"] == gateway["spec"]["template"]["metadata"]["labels"]
        assert gateway["spec"]["serviceName"] == service["metadata"]["name"]
        assert {port["port"] for port in service["spec"]["ports"]} == {4317, 4318}

        (agent, own), (_, other) = self.containers()
        variables = {variable["name"]: variable["value"] for variable in own["env"]}
        assert variables["GATEWAY"] == f"{service['metadata']['name']}:4317"
        health = load(ROOT / "deploy" / "collector" / "gateway.yaml")["extensions"]["health_check"]["endpoint"]
        for container in (own, other):
            assert str(container["livenessProbe"]["httpGet"]["port"]) == health.rpartition(":")[2]
        assert agent["volumes"][1]["hostPath"]["path"] == "/var/lib/otelcol"

    def test_folder_has_a_receiver_where_its_collector_sends_to(self):
        """In folder.yaml the collector sends to the receiver's port in its own pod, and the names and volumes agree."""
        service, claim, workload = FOLDER_PARTS
        spec = workload["spec"]["template"]["spec"]
        collector, receiver = spec["containers"]
        variables = {variable["name"]: variable["value"] for variable in collector["env"]}
        read = (ROOT / "deploy" / "collector" / "gateway.yaml").read_text(encoding="utf-8")

        assert f"--port={variables['RECEIVER'].rpartition(':')[2]}" in receiver["args"]
        assert {"RECEIVER", "MLFLOW_EXPERIMENT_ID"} <= set(re.findall(r"\$\{env:(\w+)", read))
        assert service["spec"]["selector"] == workload["spec"]["template"]["metadata"]["labels"]
        assert workload["spec"]["serviceName"] == service["metadata"]["name"] == workload["metadata"]["name"]
        (volume,) = (each for each in spec["volumes"] if "persistentVolumeClaim" in each)
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        assert receiver["volumeMounts"] == [{"name": volume["name"], "mountPath": receiver["args"][1]}]

    def test_receiver_takes_its_arguments(self):
        """The receiver's arguments in folder.yaml and docker-compose.yml are those of `otel-rollout receive`."""
        compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
        for arguments in (
            FOLDER_PARTS[2]["spec"]["template"]["spec"]["containers"][1]["args"],
            compose["services"]["receiver"]["command"],
        ):
            assert parse(arguments).command == "receive"

    def test_export_reads_the_folder_of_the_receiver(self):
        """The job of export.yaml runs `otel-rollout export` on the receiver's volume, where the receiver's pod is."""
        spec = EXPORT["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        (export,) = spec["containers"]
        receiver = FOLDER_PARTS[2]["spec"]["template"]["spec"]["containers"][1]
        (near,) = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]

        assert parse(export["args"]).command == "export"
        assert export["image"] == receiver["image"]
        assert export["args"][1] == receiver["args"][1]
        assert {**receiver["volumeMounts"][0], "readOnly": True} in export["volumeMounts"]
        assert FOLDER_PARTS[1]["metadata"]["name"] in str(spec["volumes"])
        assert near["labelSelector"]["matchLabels"] == FOLDER_PARTS[2]["spec"]["template"]["metadata"]["labels"]
