"""docker-compose.yml, as Docker Compose itself reads it."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
BACKENDS = ("mlflow", "phoenix", "jaeger")
PROFILES = {"-".join(some): set(some) for count in (1, 2) for some in combinations(BACKENDS, count)} | {
    "all": set(BACKENDS),
    "folder": {"receiver"},
}
TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")


class TestProfiles:
    """What is started."""

    @pytest.mark.parametrize("profile", PROFILES)
    def test_profile_starts_its_backends_and_one_collector(self, compose, profile):
        """Each set of backends has a profile, which starts these, one collector before them, and nothing else."""
        services = compose.model("--profile", profile)["services"]

        assert set(services) == {*PROFILES[profile], f"collector-{profile}"}

    def test_every_service_is_in_a_profile_that_is_tested(self):
        """The file has no profile besides, and no service that always runs."""
        services = yaml.safe_load(TEXT)["services"].values()

        assert {profile for service in services for profile in service["profiles"]} == set(PROFILES)

    def test_plain_up_starts_all(self, compose):
        """Without a profile, `docker compose up` starts everything; one that is named counts instead."""
        assert set(compose.model()["services"]) == {*BACKENDS, "collector-all"}
        assert set(compose.model(COMPOSE_PROFILES="jaeger")["services"]) == {"jaeger", "collector-jaeger"}

    def test_collectors_have_one_name_on_the_network(self, compose):
        """Whichever profile runs, a container beside it reaches the collector as `collector`."""
        for profile in PROFILES:
            service = compose.model("--profile", profile)["services"][f"collector-{profile}"]
            assert service["networks"] == {"default": {"aliases": ["collector"]}}


class TestSafety:
    """Who can reach what."""

    def test_everything_listens_on_loopback(self, compose):
        """Each published port is bound to 127.0.0.1, and no two services want the same one."""
        ports = [port for service in compose.model()["services"].values() for port in service["ports"]]

        assert {port["host_ip"] for port in ports} == {"127.0.0.1"}
        assert len({port["published"] for port in ports}) == len(ports)

    def test_address_and_ports_can_be_changed(self, compose):
        """LISTEN and the variables of the ports change what is published."""
        model = compose.model(LISTEN="192.0.2.1", PHOENIX_PORT="7007", OTLP_HTTP_PORT="5318")
        published = {
            (port["host_ip"], port["published"], port["target"])
            for service in model["services"].values()
            for port in service["ports"]
        }

        assert {("192.0.2.1", "7007", 6006), ("192.0.2.1", "5318", 4318)} <= published
        assert {host for host, _, _ in published} == {"192.0.2.1"}

    def test_no_password_is_set(self, compose):
        """Nothing in the file sets a password, a key or a token: the receiver's is its user's."""
        models = [compose.model(), compose.model("--profile", "folder")]
        services = [service for model in models for service in model["services"].values()]
        variables = [item for service in services for item in service.get("environment", {}).items()]

        assert [name for name, value in variables if value and re.search("PASSWORD|SECRET|TOKEN|API_KEY", name)] == []

    def test_services_have_no_capabilities(self, compose):
        """Each service runs as the owner of its volume, without a capability and without a way to get one."""
        for service in compose.model()["services"].values():
            assert (service["user"], service["cap_drop"], service["security_opt"]) == (
                "0:0",
                ["ALL"],
                ["no-new-privileges:true"],
            )


class TestKeeping:
    """Volumes and health."""

    def test_state_is_in_named_volumes(self, compose):
        """Each service writes to a named volume of its own, and into the folder that it is told to."""
        model = compose.model()
        volumes = {
            name: {volume["target"]: volume["source"] for volume in service["volumes"] if volume["type"] == "volume"}
            for name, service in model["services"].items()
        }

        assert volumes == {
            "collector-all": {"/var/lib/otelcol": "collector-queue"},
            "mlflow": {"/mnt/mlflow": "mlflow-data"},
            "phoenix": {"/mnt/phoenix": "phoenix-data"},
            "jaeger": {"/mnt/jaeger": "jaeger-data"},
        }
        assert model["services"]["phoenix"]["environment"]["PHOENIX_WORKING_DIR"] == "/mnt/phoenix"
        assert "--backend-store-uri=sqlite:////mnt/mlflow/mlflow.db" in model["services"]["mlflow"]["command"]
        assert "/mnt/jaeger" in (ROOT / "deploy" / "jaeger.yaml").read_text(encoding="utf-8")

    def test_backends_have_a_healthcheck(self, compose):
        """Each backend is asked on a port of its own; the collector's image has nothing to ask with."""
        services = compose.model()["services"]

        assert {name for name, service in services.items() if "healthcheck" in service} == set(BACKENDS)
        for name in BACKENDS:
            assert services[name]["healthcheck"]["test"][0] == "CMD"

    def test_mounted_files_exist(self, compose):
        """Each file that is mounted is there: Docker would make a folder in its place."""
        for service in compose.model()["services"].values():
            for volume in service["volumes"]:
                if volume["type"] == "bind":
                    assert (ROOT / volume["source"]).is_file()
                    assert volume["read_only"]
