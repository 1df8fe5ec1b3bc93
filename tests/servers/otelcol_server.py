"""An OpenTelemetry Collector for tests, on free loopback ports."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from .process import ServerProcess, answers_http, free_port

__all__ = ["Otelcol", "Sink", "relay_to"]

COLLECTOR = Path(__file__).resolve().parents[2] / "deploy" / "collector"
BODY_BYTES = 2**26
QUIET = {"service::telemetry::metrics::level": "none"}


class Otelcol:
    """A collector that can be killed and started again.

    Args:
        program: The collector.
        configs: Values of its `--config`: files, or `yaml:` and a text.
        folder: Where its log is.
        values: Single values of its configuration, with `::` between the keys.
        variables: Its environment.
        uncaptured: See `ServerProcess`.
    """

    def __init__(
        self,
        program: Path,
        configs: Iterable[str | Path],
        folder: Path,
        *,
        values: Mapping[str, object] | None = None,
        variables: Mapping[str, str] | None = None,
        uncaptured: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        grpc, http, health = free_port(), free_port(), free_port()
        self.address, self.grpc_address = f"http://127.0.0.1:{http}", f"http://127.0.0.1:{grpc}"
        own = {
            "receivers::otlp::protocols::grpc::endpoint": f"127.0.0.1:{grpc}",
            "receivers::otlp::protocols::http::endpoint": f"127.0.0.1:{http}",
            "extensions::health_check::endpoint": f"127.0.0.1:{health}",
        }
        texts = [f"yaml:{key}: {json.dumps(value)}" for key, value in {**own, **QUIET, **(values or {})}.items()]
        folder.mkdir(parents=True, exist_ok=True)
        self.process = ServerProcess(
            folder.name,
            [str(program), *(f"--config={config}" for config in [*configs, *texts])],
            lambda: answers_http(f"http://127.0.0.1:{health}/"),
            environment=variables,
            folder=folder,
            uncaptured=uncaptured,
        )

    @classmethod
    def agent(cls, program: Path, gateway: str, folder: Path, values: Mapping[str, object] | None = None) -> Otelcol:
        """Return the agent of deploy/, which sends to a gateway at `host:port`."""
        variables = {"GATEWAY": gateway, "GATEWAY_INSECURE": "true", "QUEUE_FOLDER": str(folder / "queue")}
        return cls(program, [COLLECTOR / "agent.yaml"], folder, values=values, variables=variables)

    @classmethod
    def gateway(
        cls, program: Path, backends: Mapping[str, str], folder: Path, values: Mapping[str, object] | None = None
    ) -> Otelcol:
        """Return the gateway of deploy/, with the addresses of its backends by their names."""
        given: dict[str, object] = {f"exporters::otlp_http/{name}::endpoint": url for name, url in backends.items()}
        given["service::pipelines::traces::exporters"] = [f"otlp_http/{name}" for name in backends]
        variables = {"QUEUE_FOLDER": str(folder / "queue")}
        config = [COLLECTOR / "gateway.yaml"]
        return cls(program, config, folder, values={**given, **(values or {})}, variables=variables)

    def endpoint(self, protocol: str) -> str:
        """Return the OTLP endpoint for a value of OTEL_EXPORTER_OTLP_PROTOCOL."""
        return self.grpc_address if protocol == "grpc" else self.address

    def end(self, number: int) -> None:
        """End it with a signal, and wait until it has ended."""
        self.process.end(number)

    def kill(self) -> None:
        """End it without warning."""
        self.end(signal.SIGKILL)

    def log(self) -> str:
        """Return what it has logged."""
        return self.process.log.read_text(errors="replace")

    def __enter__(self) -> Otelcol:  # noqa: PYI034 - typing.Self needs Python 3.11
        self.process.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.process.stop()


class Sink(Otelcol):
    """A collector that writes what it takes to a file.

    Args:
        program: The collector.
        folder: Where the file and its log are.
        options: Of its `file` exporter.
    """

    def __init__(self, program: Path, folder: Path, **options: object) -> None:
        self.file = folder / str(options.pop("name", "otlp.jsonl"))
        http = {"max_request_body_size": BODY_BYTES}
        config = {
            "receivers": {"otlp": {"protocols": {"grpc": {"max_recv_msg_size_mib": 64}, "http": http}}},
            "extensions": {"health_check": {}},
            "exporters": {"file": {"path": str(self.file), "flush_interval": "100ms", **options}},
            "service": {
                "extensions": ["health_check"],
                "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["file"]}},
            },
        }
        super().__init__(program, [f"yaml:{json.dumps(config)}"], folder)

    def spans(self) -> Counter[tuple[str, str]]:
        """Return how often each span is in the file, by the ids of its trace and its own."""
        return Counter(self._ids())

    def _ids(self) -> Iterator[tuple[str, str]]:
        if not self.file.exists():
            return
        with self.file.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    # Half written.
                    return
                for resource in json.loads(line)["resourceSpans"]:
                    for scope in resource["scopeSpans"]:
                        for span in scope["spans"]:
                            yield span["traceId"], span["spanId"]


def relay_to(program: Path, grpc_address: str, folder: Path) -> Otelcol:
    """Return a collector that passes everything on over gRPC."""
    config = {
        "receivers": {"otlp": {"protocols": {"grpc": {}, "http": {}}}},
        "extensions": {"health_check": {}},
        "exporters": {"otlp_grpc": {"endpoint": grpc_address.partition("://")[2], "tls": {"insecure": True}}},
        "service": {
            "extensions": ["health_check"],
            "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["otlp_grpc"]}},
        },
    }
    return Otelcol(program, [f"yaml:{json.dumps(config)}"], folder)
