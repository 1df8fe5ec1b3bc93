"""Servers that ask who we are, and that show a certificate."""

from __future__ import annotations

import base64
import ssl
import subprocess
import urllib.request
from contextlib import suppress

import pytest

from otel_rollout.export.outcome import Verdict
from otel_rollout_mlflow import MlflowSpanExporter
from otel_rollout_mlflow.credentials import Credentials, read_credentials

ADMIN, PASSWORD = "admin", "a-long-password-1234"


def basic(username: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{username}:{password}'.encode()).decode()}"


class TestReadCredentials:
    """The environment, in the order in which mlflow reads it."""

    def test_name_and_password(self, tmp_path) -> None:
        """A name with a password wins over a token."""
        environment = {
            "MLFLOW_TRACKING_USERNAME": "me",
            "MLFLOW_TRACKING_PASSWORD": "secret",
            "MLFLOW_TRACKING_TOKEN": "token",
        }

        assert read_credentials(environment, tmp_path) == Credentials(headers={"Authorization": basic("me", "secret")})

    def test_token(self, tmp_path) -> None:
        """A token alone is a bearer token."""
        found = read_credentials({"MLFLOW_TRACKING_TOKEN": "token"}, tmp_path)

        assert found == Credentials(headers={"Authorization": "Bearer token"})

    def test_file_of_credentials(self, tmp_path) -> None:
        """~/.mlflow/credentials fills in what the environment leaves out."""
        (tmp_path / ".mlflow").mkdir()
        (tmp_path / ".mlflow" / "credentials").write_text(
            "[mlflow]\nmlflow_tracking_username = them\nmlflow_tracking_password = 100%secret\n"
        )

        found = read_credentials({"MLFLOW_TRACKING_USERNAME": "me"}, tmp_path)

        assert found == Credentials(headers={"Authorization": basic("me", "100%secret")})

    def test_certificates_and_workspace(self, tmp_path) -> None:
        """The server's and our own certificate, and the workspace, are taken over."""
        environment = {
            "MLFLOW_TRACKING_SERVER_CERT_PATH": "/ca.pem",
            "MLFLOW_TRACKING_CLIENT_CERT_PATH": "/me.pem",
            "MLFLOW_WORKSPACE": "team",
        }

        assert read_credentials(environment, tmp_path) == Credentials(
            headers={"X-MLFLOW-WORKSPACE": "team"}, verify="/ca.pem", certificate="/me.pem"
        )

    def test_insecure(self, tmp_path) -> None:
        """`MLFLOW_TRACKING_INSECURE_TLS` turns the check of the certificate off."""
        assert read_credentials({"MLFLOW_TRACKING_INSECURE_TLS": "TRUE"}, tmp_path) == Credentials(verify=False)

    def test_contradiction(self, tmp_path, trajectory, monkeypatch) -> None:
        """Not to check the certificate, and what to check it against, contradict each other, as in mlflow."""
        monkeypatch.setenv("MLFLOW_TRACKING_INSECURE_TLS", "true")
        monkeypatch.setenv("MLFLOW_TRACKING_SERVER_CERT_PATH", "/ca.pem")

        outcome = MlflowSpanExporter(tracking_uri="http://127.0.0.1:1").send(trajectory().spans)

        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert outcome.reason == (
            "MLFLOW_TRACKING_INSECURE_TLS and MLFLOW_TRACKING_SERVER_CERT_PATH contradict each other: set one of them"
        )


@pytest.fixture(scope="module")
def guarded(start_mlflow):
    """A server that asks for a name and a password."""
    server = start_mlflow(
        "mlflow_auth",
        arguments=["--app-name", "basic-auth"],
        variables={"MLFLOW_FLASK_SERVER_SECRET_KEY": "key", "MLFLOW_AUTH_ADMIN_PASSWORD": PASSWORD},
    )
    with server:
        yield server


@pytest.mark.slow
@pytest.mark.integration
class TestGuardedServer:
    """MLflow's own basic authentication."""

    def test_right_password(self, guarded, project, trajectory, read_back, monkeypatch) -> None:
        """With the right name and password in the environment, trajectories, runs and rewards get through."""
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", ADMIN)
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
        one = trajectory(project, reward=1.0)

        exporter = MlflowSpanExporter(tracking_uri=guarded.address, create_run=True)
        outcome = exporter.send(one.spans)

        assert outcome.verdict is Verdict.DELIVERED, outcome.reason
        assert exporter.force_flush(), exporter.follow_up_requests.last_error
        assert read_back(guarded.address, project).trace(one.mlflow_id).info.assessments[0].value == 1.0

    def test_password_in_the_address(self, guarded, project, trajectory) -> None:
        """A name and password in the tracking URI are used."""
        uri = guarded.address.replace("://", f"://{ADMIN}:{PASSWORD}@")

        outcome = MlflowSpanExporter(tracking_uri=uri).send(trajectory(project).spans)

        assert outcome.verdict is Verdict.DELIVERED, outcome.reason

    @pytest.mark.parametrize("userinfo", ["", f"{ADMIN}:wrong-secret@"])
    def test_wrong_password(self, guarded, project, trajectory, userinfo) -> None:
        """Without a password, or with a wrong one, the error names the variables and never the password."""
        uri = guarded.address.replace("://", f"://{userinfo}")

        outcome = MlflowSpanExporter(tracking_uri=uri).send(trajectory(project).spans)

        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD" in outcome.reason
        assert "wrong-secret" not in outcome.reason


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for 127.0.0.1 that nobody has signed but itself, and its key."""
    folder = tmp_path_factory.mktemp("certificate")
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *files],
        check=True,
        capture_output=True,
    )
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture(scope="module")
def encrypted(start_mlflow, certificate):
    """A server that speaks TLS."""
    file, key = certificate

    def healthy(port: int) -> bool:
        with suppress(OSError):
            context = ssl.create_default_context(cafile=str(file))
            with urllib.request.urlopen(f"https://127.0.0.1:{port}/health", timeout=2, context=context) as answer:
                return answer.status == 200
        return False

    options = f"--ssl-keyfile {key} --ssl-certfile {file}"
    with start_mlflow("mlflow", arguments=["--uvicorn-opts", options], scheme="https", healthy=healthy) as server:
        yield server


@pytest.mark.slow
@pytest.mark.integration
class TestEncryptedServer:
    """A server whose certificate no system trusts."""

    def test_certificate_of_the_environment(self, encrypted, certificate, project, trajectory, monkeypatch) -> None:
        """`MLFLOW_TRACKING_SERVER_CERT_PATH` says what the server's certificate is checked against."""
        monkeypatch.setenv("MLFLOW_TRACKING_SERVER_CERT_PATH", str(certificate[0]))

        outcome = MlflowSpanExporter(tracking_uri=encrypted.address).send(trajectory(project).spans)

        assert outcome.verdict is Verdict.DELIVERED, outcome.reason

    @pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
    def test_unchecked(self, encrypted, project, trajectory, monkeypatch) -> None:
        """`MLFLOW_TRACKING_INSECURE_TLS` lets the certificate pass."""
        monkeypatch.setenv("MLFLOW_TRACKING_INSECURE_TLS", "true")

        outcome = MlflowSpanExporter(tracking_uri=encrypted.address).send(trajectory(project).spans)

        assert outcome.verdict is Verdict.DELIVERED, outcome.reason

    def test_untrusted(self, encrypted, project, trajectory) -> None:
        """Without either, nothing is sent, and the error says that the certificate isn't trusted."""
        outcome = MlflowSpanExporter(tracking_uri=encrypted.address).send(trajectory(project).spans)

        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert "isn't trusted" in outcome.reason
