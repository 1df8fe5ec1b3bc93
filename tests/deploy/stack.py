"""The services of a compose file, started natively: each one's own command and variables, on a machine of its own.

What an image holds comes from the virtual environment with the same version; the collector's is a program.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.deploy.collector_config import merged
from tests.deploy.network import Network
from tests.servers.process import ServerProcess

__all__ = ["TRAINER", "Stack", "collector_config", "exporters_in_use"]

AGENT = Path(__file__).resolve().parents[2] / "deploy" / "collector" / "agent.yaml"
TRAINER = "trainer"
COLLECTOR = "otel/opentelemetry-collector-contrib"
# Each check starts an interpreter, which the servers' own start has to share the processor with.
SECONDS_BETWEEN_CHECKS = 2.0
# By image: the environment, and the entry point that the image has.
RECEIVER = "otel-rollout"
IMAGES: Mapping[str, tuple[str, list[str]]] = {
    "ghcr.io/mlflow/mlflow": ("mlflow", []),
    "arizephoenix/phoenix": ("phoenix", ["python"]),
}


def collector_config(service: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a collector that is started as this service."""
    mounted = {volume["target"]: Path(volume["source"]) for volume in service["volumes"] if volume["type"] == "bind"}
    locations = [part.removeprefix("--config=") for part in service["command"]]
    return merged(locations, mounted.__getitem__, service["environment"])


def exporters_in_use(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the exporters that a collector's pipeline sends to."""
    return {name: config["exporters"][name] for name in config["service"]["pipelines"]["traces"]["exporters"]}


class Stack:
    """Services on one network, and the machine `trainer` beside them.

    Args:
        model: A compose file as `docker compose config --format json` gives it.
        environments: The virtual environments by their names.
        collector: The OpenTelemetry Collector.
        folder: Where logs and volumes go.
        uncaptured: See `ServerProcess`.
    """

    def __init__(
        self,
        model: Mapping[str, Any],
        environments: Mapping[str, Path],
        collector: Path,
        folder: Path,
        *,
        uncaptured: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.services: Mapping[str, Any] = model["services"]
        self._environments = environments
        self._collector = collector
        self._folder = folder
        self._uncaptured = uncaptured
        self._running = ExitStack()
        volumes = {}
        for service in self.services.values():
            for volume in service["volumes"]:
                if volume["type"] == "volume" and image_of(service) != COLLECTOR:
                    volumes[volume["target"]] = folder / volume["source"]
                    volumes[volume["target"]].mkdir()
        names = {name: service["networks"]["default"] for name, service in self.services.items()}
        aliases = {name: (settings or {}).get("aliases", []) for name, settings in names.items()}
        self._network = Network({**aliases, TRAINER: []}, volumes)

    def __enter__(self) -> Stack:  # noqa: PYI034 - typing.Self needs Python 3.11
        self._running.enter_context(self._network)
        return self

    def __exit__(self, *unused: object) -> None:
        self._running.close()

    def start(self) -> None:
        """Start all services and wait until each is healthy."""
        for name, service in self.services.items():
            folder = self._folder / name
            folder.mkdir()
            command, variables = self._native(service)
            server = ServerProcess(
                name,
                self._network.command(name, command),
                lambda name=name: self.healthy(name, pause=SECONDS_BETWEEN_CHECKS),
                environment=variables,
                folder=folder,
                uncaptured=self._uncaptured,
            )
            self._running.enter_context(server)

    def volume(self, name: str) -> Path:
        """Return the folder that a service's volume is on this machine."""
        (volume,) = (each for each in self.services[name]["volumes"] if each["type"] == "volume")
        return self._folder / volume["source"]

    def start_agent(self) -> None:
        """Start an agent on the trainer's machine, which sends to the collector of the services."""
        folder = self._folder / "agent"
        folder.mkdir()
        asks = [sys.executable, "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:13133', timeout=2)"]
        agent = ServerProcess(
            "agent",
            self._network.command(TRAINER, [str(self._collector), f"--config={AGENT}"]),
            lambda: self.run(asks).returncode == 0,
            environment={
                "GATEWAY": "collector:4317",
                "GATEWAY_INSECURE": "true",
                "QUEUE_FOLDER": str(folder / "queue"),
            },
            folder=folder,
            uncaptured=self._uncaptured,
        )
        self._running.enter_context(agent)

    def healthy(self, name: str, *, pause: float = 0.0) -> bool:
        """Return whether a service is up: by its own healthcheck, where its image can run one.

        Args:
            name: The service.
            pause: Seconds to wait before a service is said not to be up.
        """
        healthy = self._healthy(self.services[name], name)
        time.sleep(0.0 if healthy else pause)
        return healthy

    def _healthy(self, service: Mapping[str, Any], name: str) -> bool:
        if image_of(service) == COLLECTOR:
            port = port_of(collector_config(service)["extensions"]["health_check"]["endpoint"])
            connect = f"import urllib.request as r; r.urlopen('http://{name}:{port}', timeout=2)"
            return self.run([sys.executable, "-c", connect]).returncode == 0
        return self._network.run(name, service["healthcheck"]["test"][1:], env=self._native(service)[1]).returncode == 0

    def run(self, command: list[str], **variables: str) -> Any:
        """Run a command on the trainer's machine to its end; its output is text."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
        return self._network.run(TRAINER, command, env={**inherited, **variables})

    def _native(self, service: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
        if image_of(service) == COLLECTOR:
            return self._collector_command(service)
        if image_of(service) == RECEIVER:
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            return [sys.executable, "-m", "otel_rollout.cli", *service["command"]], {
                **service["environment"],
                "PATH": path,
            }
        name, entry_point = IMAGES[image_of(service)]
        path = f"{self._environments[name] / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin"
        return [*entry_point, *service["command"]], {**service["environment"], "PATH": path}

    def _collector_command(self, service: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
        mounted = {volume["target"]: volume["source"] for volume in service["volumes"] if volume["type"] == "bind"}
        locations = [part.removeprefix("--config=") for part in service["command"]]
        options = [f"--config={mounted.get(location, location)}" for location in locations]
        # The folder that the volume stands at in the container is the machine's own here.
        queue = {"QUEUE_FOLDER": str(self._folder / "queue")}
        return [str(self._collector), *options], {**service["environment"], **queue}


def image_of(service: Mapping[str, Any]) -> str:
    """Return the name of a service's image, without its tag."""
    return service["image"].rpartition(":")[0]


def port_of(endpoint: str) -> int:
    """Return the port of `host:port` or of an address with a scheme."""
    port = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}").port
    assert port is not None, endpoint
    return port
