"""The collector's configurations, alone and as docker-compose.yml puts them together."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from otel_rollout.settings import SETTINGS
from otel_rollout_otlp import OtlpGrpcSpanExporter
from tests.deploy.collector_config import expand, load, merged
from tests.deploy.stack import exporters_in_use

ROOT = Path(__file__).resolve().parents[2]
COLLECTOR = ROOT / "deploy" / "collector"
NAMES = ("agent", "gateway")
MIB = 2**20
DEFAULTS = {setting.name: setting.default for setting in SETTINGS}
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
COLLECTORS = {name: service for name, service in COMPOSE["services"].items() if name.startswith("collector-")}


def queues():
    """Return the sending queue of each exporter of both configurations, by a name for the test."""
    return {
        f"{name} {exporter}": settings["sending_queue"]
        for name in NAMES
        for exporter, settings in load(COLLECTOR / f"{name}.yaml")["exporters"].items()
    }


def receiving(path):
    """Return what a collector's (or Jaeger's) receiver takes at most, in bytes, over gRPC and over HTTP."""
    protocols = load(path)["receivers"]["otlp"]["protocols"]
    return protocols["grpc"]["max_recv_msg_size_mib"] * MIB, protocols["http"]["max_request_body_size"]


def of_service(service):
    """Return the configuration that a collector of docker-compose.yml starts with."""
    return merged(options_of(service), Path, {})


def options_of(service):
    """Return the `--config` options that a collector of docker-compose.yml starts with, with paths of this machine."""
    mounts = {
        volume.split(":")[1]: str(ROOT / volume.split(":")[0]) for volume in service["volumes"] if volume[0] == "."
    }
    locations = [part.removeprefix("--config=") for part in service["command"]]
    return [mounts.get(location, location) for location in locations]


CONFIGURATIONS = {
    "agent": [COLLECTOR / "agent.yaml"],
    "agent by trace": [COLLECTOR / "agent.yaml", COLLECTOR / "by-trace.yaml"],
    "gateway": [COLLECTOR / "gateway.yaml"],
    **{name: options_of(service) for name, service in COLLECTORS.items()},
}
"""The options of each collector that somebody may start."""


class TestSound:
    """Nothing that the pinned collector would refuse."""

    @pytest.mark.integration
    @pytest.mark.parametrize("options", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
    def test_collector_accepts(self, collector_program, options):
        """The collector itself accepts each file, and what each profile of docker-compose.yml makes of them."""
        command = [str(collector_program), "validate", *(f"--config={option}" for option in options)]
        environment = {**os.environ, "GATEWAY": "gateway:4317"}
        checked = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)

        assert checked.returncode == 0, checked.stderr

    @pytest.mark.parametrize("name", NAMES)
    def test_memory_is_limited_first(self, name):
        """Nothing is kept before the memory limiter has seen it."""
        pipelines = load(COLLECTOR / f"{name}.yaml")["service"]["pipelines"]

        assert [parts["processors"][0] for parts in pipelines.values()] == ["memory_limiter"]

    def test_jaeger(self):
        """Each name in the pipeline of Jaeger's configuration is defined there, and the storage that it names too."""
        config = load(ROOT / "deploy" / "jaeger.yaml")
        pipeline = config["service"]["pipelines"]["traces"]
        (storage,) = config["extensions"]["jaeger_storage"]["backends"]

        assert set(config["service"]["extensions"]) == set(config["extensions"])
        assert pipeline == {"receivers": list(config["receivers"]), "exporters": list(config["exporters"])}
        assert config["exporters"]["jaeger_storage_exporter"]["trace_storage"] == storage
        assert config["extensions"]["jaeger_query"]["storage"]["traces"] == storage


class TestLimits:
    """What one tier sends, the next one takes."""

    @pytest.mark.parametrize("path", [*(COLLECTOR / f"{name}.yaml" for name in NAMES)], ids=NAMES)
    def test_receivers_take_any_batch_of_ours(self, path):
        """Both receivers take our largest batch, and a span that goes alone because its payload is the largest."""
        grpc, http = receiving(path)

        assert min(grpc, http) > 2 * max(DEFAULTS["max_batch_bytes"], 2 * DEFAULTS["max_payload_bytes"])
        assert grpc > OtlpGrpcSpanExporter.max_batch_bytes

    @pytest.mark.parametrize("queue", queues().values(), ids=queues())
    def test_queues_drop_no_span_for_its_size(self, queue):
        """A batch of a queue has no bound: a span above one is dropped, and its sender is told that it is taken."""
        assert queue["batch"]["max_size"] == 0

    def test_next_tier_takes_what_queues_send(self):
        """The gateway takes what an agent sends, and Jaeger what the gateway sends."""
        # A batch is `min_size` and one request at most.
        sent = {name: queue["batch"]["min_size"] for name, queue in queues().items()}
        from_agent = sent["agent otlp_grpc"] + OtlpGrpcSpanExporter.max_batch_bytes
        from_gateway = sent["gateway otlp_http/jaeger"] + from_agent

        assert min(receiving(COLLECTOR / "gateway.yaml")) > 2 * from_agent
        assert min(receiving(ROOT / "deploy" / "jaeger.yaml")) > 2 * from_gateway

    @pytest.mark.parametrize("queue", queues().values(), ids=queues())
    def test_sizes_are_bytes(self, queue):
        """Queue and batch both say that they count bytes, and no size is left to a default that counts spans."""
        assert queue["sizer"] == queue["batch"]["sizer"] == "bytes"
        assert MIB <= queue["batch"]["min_size"] <= queue["queue_size"]


class TestDurability:
    """What is taken is kept until a backend has it."""

    @pytest.mark.parametrize("name", NAMES)
    def test_queues_are_on_a_disk_that_stays(self, name):
        """Each queue is in a folder of the volume that compose and Kubernetes mount, and tried again without an end."""
        config = expand(load(COLLECTOR / f"{name}.yaml"), {})
        mounts = {volume.split(":")[1] for volume in next(iter(COLLECTORS.values()))["volumes"]}
        storage = config["extensions"]["file_storage"]

        assert Path(storage["directory"]).parent.as_posix() in mounts
        assert storage["create_directory"]
        assert storage["fsync"]
        for exporter in config["exporters"].values():
            assert exporter["sending_queue"]["storage"] == "file_storage"
            assert exporter["retry_on_failure"]["max_elapsed_time"] == "0s"

    @pytest.mark.parametrize("queue", queues().values(), ids=queues())
    def test_full_queue_is_the_senders_to_know(self, queue):
        """A full queue refuses instead of blocking, and no queue waits for a result, which one on disk can't."""
        assert queue["block_on_overflow"] is False
        assert "wait_for_result" not in queue


class TestDestinations:
    """Where the collectors of docker-compose.yml send to."""

    @pytest.mark.parametrize("name", COLLECTORS)
    def test_each_profile_sends_to_its_own_backends_and_to_no_other(self, name):
        """A collector sends to the services of its profile, and depends on them: no queue fills for an absent one."""
        service = COLLECTORS[name]
        (profile,) = service["profiles"]
        backends = {
            name
            for name, other in COMPOSE["services"].items()
            if profile in other["profiles"] and name not in COLLECTORS
        }
        addresses = {exporter["endpoint"] for exporter in exporters_in_use(of_service(service)).values()}

        named = {"all": {"mlflow", "phoenix", "jaeger"}, "folder": {"receiver"}}

        assert {re.sub(r"http://(\w+):\d+", r"\1", address) for address in addresses} == backends
        assert set(service["depends_on"]) == backends
        assert backends == named.get(profile, set(profile.split("-")))

    def test_ports_are_those_that_the_backends_listen_on(self):
        """Each address has the port that its service is told to listen on."""
        exporters = load(COLLECTOR / "gateway.yaml")["exporters"]
        services = COMPOSE["services"]
        jaeger = load(ROOT / "deploy" / "jaeger.yaml")["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
        (mlflow,) = (part for part in services["mlflow"]["command"] if part.startswith("--port="))

        assert {name: settings["endpoint"] for name, settings in exporters.items()} == {
            "otlp_http/mlflow": f"http://mlflow:{mlflow.removeprefix('--port=')}",
            "otlp_http/phoenix": f"http://phoenix:{services['phoenix']['environment']['PHOENIX_PORT']}",
            "otlp_http/jaeger": f"http://jaeger:{jaeger.rpartition(':')[2]}",
            "otlp_http/folder": "${env:RECEIVER:-http://receiver:4318}",
        }

    def test_mlflow_gets_an_experiment(self):
        """MLflow's exporter sends the experiment's id: the variable's, else 0, which every MLflow has."""
        config = load(COLLECTOR / "gateway.yaml")["exporters"]["otlp_http/mlflow"]

        assert expand(config, {})["headers"] == {"x-mlflow-experiment-id": "0"}
        assert expand(config, {"MLFLOW_EXPERIMENT_ID": "7"})["headers"] == {"x-mlflow-experiment-id": "7"}

    def test_agent_listens_on_loopback_alone(self):
        """An agent that is told nothing else can be reached from its own node only."""
        text = (COLLECTOR / "agent.yaml").read_text(encoding="utf-8")
        config = expand(yaml.safe_load(text), {})
        protocols = config["receivers"]["otlp"]["protocols"]

        assert "0.0.0.0" not in text
        assert {protocols["grpc"]["endpoint"], protocols["http"]["endpoint"]} == {"127.0.0.1:4317", "127.0.0.1:4318"}
