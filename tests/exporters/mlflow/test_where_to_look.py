"""Where MLflow's users find their trajectories, as `otel-rollout demo` prints it."""

from __future__ import annotations

from importlib import metadata

import pytest

from otel_rollout_mlflow import MlflowSpanExporter


def where_to_look(uri: str, project: str, experiment: str) -> list[str]:
    """Return what the exporter for a URI says."""
    return MlflowSpanExporter(tracking_uri=uri).where_to_look(project, experiment)


class TestWhereToLook:
    """The lines to paste."""

    @pytest.mark.parametrize("scheme", ["postgresql", "mysql+pymysql", "http"])
    def test_an_address_with_a_password_is_read_from_the_environment(self, scheme):
        """The password isn't printed, and the lines work without it."""
        shown = "\n".join(where_to_look(f"{scheme}://me:secret@host:5432/db", "math", "exp-1"))

        assert "secret" not in shown
        assert 'mlflow.set_tracking_uri(os.environ["MLFLOW_TRACKING_URI"])' in shown
        assert ('--backend-store-uri "$MLFLOW_TRACKING_URI"' in shown) == (scheme != "http")

    def test_an_address_without_a_password_is_printed(self):
        """It can be pasted as it is."""
        shown = "\n".join(where_to_look("sqlite:////tmp/mlruns.db", "math", "exp-1"))

        assert 'mlflow.set_tracking_uri("sqlite:////tmp/mlruns.db")' in shown
        assert "--backend-store-uri sqlite:////tmp/mlruns.db" in shown

    def test_the_code_fits_a_terminal(self):
        """Pasted from 80 columns, the lines of Python are whole."""
        lines = where_to_look("sqlite:////tmp/mlruns.db", "math", "demo-20261125-183533-175")
        code = [line[4:] for line in lines[: lines.index("", 3)] if line.startswith("    ")]

        compile("\n".join(code), "pasted", "exec")
        assert max(map(len, code)) <= 74

    def test_the_server_of_a_database_has_its_driver(self, monkeypatch):
        """`uvx` installs the driver beside MLflow, which has none."""

        def no_server(name):
            if name == "mlflow":
                raise metadata.PackageNotFoundError(name)
            return "3.17.2"

        monkeypatch.setattr(metadata, "version", no_server)

        assert where_to_look("postgresql://host/db", "math", "exp-1")[-1].startswith(
            "    uvx --from mlflow==3.17.2 --with 'psycopg[binary]' mlflow server"
        )
