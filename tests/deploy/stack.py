"""The services of a compose file, started natively: each one's own command and variables, on a machine of its own.

What an image holds comes from the virtual environment with the same version. A collector can't be had that way, so
rotel takes its place, with the ports, the backend and the headers of the collector's configuration.
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
from tests.servers.rotel_server import library_folder

__all__ = ["TRAINER", "Stack", "collector_config", "exporters_in_use"]

TRAINER = "trainer"
COLLECTOR = "otel/opentelemetry-collector-contrib"
# Each check starts an interpreter, which the servers' own start has to share the processor with.
SECONDS_BETWEEN_CHECKS = 2.0
# By image: the environment, and the entry point that the image has.
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
        folder: Where logs and volumes go.
        uncaptured: See `ServerProcess`.
    """

    def __init__(
        self,
        model: Mapping[str, Any],
        environments: Mapping[str, Path],
        folder: Path,
        *,
        uncaptured: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.services: Mapping[str, Any] = model["services"]
        self._environments = environments
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
                seconds_to_start=240.0,
                uncaptured=self._uncaptured,
            )
            self._running.enter_context(server)

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
            port = port_of(collector_config(service)["receivers"]["otlp"]["protocols"]["http"]["endpoint"])
            connect = f"import socket; socket.create_connection(('{name}', {port}), 2)"
            return self.run([sys.executable, "-c", connect]).returncode == 0
        return self._network.run(name, service["healthcheck"]["test"][1:], env=self._native(service)[1]).returncode == 0

    def run(self, command: list[str], **variables: str) -> Any:
        """Run a command on the trainer's machine to its end; its output is text."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
        return self._network.run(TRAINER, command, env={**inherited, **variables})

    def _native(self, service: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
        if image_of(service) == COLLECTOR:
            return self._rotel(collector_config(service))
        name, entry_point = IMAGES[image_of(service)]
        path = f"{self._environments[name] / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin"
        return [*entry_point, *service["command"]], {**service["environment"], "PATH": path}

    def _rotel(self, config: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
        environment = self._environments["rotel"]
        protocols = config["receivers"]["otlp"]["protocols"]
        ((_, exporter),) = exporters_in_use(config).items()  # more than one is what rotel can't do
        (binary,) = environment.glob("lib/python3*/site-packages/rotel/rotel-agent")
        command = [
            str(binary), "start",
            "--otlp-grpc-endpoint", protocols["grpc"]["endpoint"],
            "--otlp-grpc-max-recv-msg-size-mib", str(protocols["grpc"]["max_recv_msg_size_mib"]),
            "--otlp-http-endpoint", protocols["http"]["endpoint"],
            "--exporter", "otlp",
            "--otlp-exporter-protocol", "http",
            "--otlp-exporter-endpoint", exporter["endpoint"],
        ]  # fmt: skip
        for header, value in exporter.get("headers", {}).items():
            command += ["--otlp-exporter-custom-headers", f"{header}={value}"]
        return command, {"LD_LIBRARY_PATH": library_folder(environment / "bin" / "python")}


def image_of(service: Mapping[str, Any]) -> str:
    """Return the name of a service's image, without its tag."""
    return service["image"].rpartition(":")[0]


def port_of(endpoint: str) -> int:
    """Return the port of `host:port` or of an address with a scheme."""
    port = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}").port
    assert port is not None, endpoint
    return port
