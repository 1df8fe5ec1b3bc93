"""The exporter's parts that need no server: settings, names, run, memory."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from otel_rollout_weave import WeaveSpanExporter
from otel_rollout_weave.catalogue import object_id_of
from otel_rollout_weave.settings import read_settings, run_of_process


class TestSettings:
    """`read_settings`, against weave's own rules."""

    def test_public_service(self, tmp_path: Path) -> None:
        """With nothing set, calls go to W&B's own service."""
        found = read_settings(environment={"HOME": str(tmp_path)})
        assert (found.api_url, found.trace_server_url) == ("https://api.wandb.ai", "https://trace.wandb.ai")
        assert (found.api_key, found.entity, found.verify, found.timeout) == (None, None, True, 90.0)

    def test_own_server(self, tmp_path: Path) -> None:
        """A server of one's own takes calls below its own address."""
        found = read_settings(environment={"HOME": str(tmp_path), "WANDB_BASE_URL": "https://wb.example/"})
        assert (found.api_url, found.trace_server_url) == ("https://wb.example", "https://wb.example/traces")

    def test_public_name_of_own_server(self, tmp_path: Path) -> None:
        """A server with another public name takes calls below that one."""
        given = {"WANDB_BASE_URL": "http://inside", "WANDB_PUBLIC_BASE_URL": "https://out", "HOME": str(tmp_path)}
        assert read_settings(environment=given).trace_server_url == "https://out/traces"

    def test_trace_server_of_its_own(self, tmp_path: Path) -> None:
        """WF_TRACE_SERVER_URL wins over the address that follows from the base."""
        given = {"WF_TRACE_SERVER_URL": "http://t/", "WANDB_BASE_URL": "http://b", "HOME": str(tmp_path)}
        assert read_settings(environment=given).trace_server_url == "http://t"

    def test_host_that_login_noted(self, tmp_path: Path) -> None:
        """`wandb login --host` writes the host to a settings file, which counts."""
        (tmp_path / "settings").write_text("[default]\nbase_url = https://noted.example\n")
        found = read_settings(environment={"WANDB_CONFIG_DIR": str(tmp_path), "HOME": str(tmp_path)})
        assert found.api_url == "https://noted.example"

    def test_files_that_cannot_be_read(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """Broken files cost a warning, not the program."""
        (tmp_path / "settings").write_text("no section")
        (tmp_path / ".netrc").write_text("machine")
        given = {"WANDB_CONFIG_DIR": str(tmp_path), "HOME": str(tmp_path)}
        assert read_settings(environment=given).api_key is None
        assert len(caplog.records) == 2

    def test_arguments_win(self, tmp_path: Path) -> None:
        """An argument wins over the environment."""
        given = {"WANDB_API_KEY": "e", "WANDB_ENTITY": "e", "WEAVE_HTTP_TIMEOUT": "5", "HOME": str(tmp_path)}
        found = read_settings(
            api_key="a", base_url="http://a", trace_server_url="http://t", entity="x", timeout=7, environment=given
        )
        assert (found.api_key, found.entity, found.timeout) == ("a", "x", 7)
        assert (found.api_url, found.trace_server_url) == ("http://a", "http://t")

    def test_certificates(self, tmp_path: Path) -> None:
        """The variable that turns off weave's check of certificates turns off ours."""
        given = {"WEAVE_INSECURE_DISABLE_SSL": "true", "HOME": str(tmp_path)}
        assert not read_settings(environment=given).verify


class TestExporter:
    """`WeaveSpanExporter` before it sends anything."""

    def test_is_made_without_effect(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Making an exporter reads no file, opens nothing and needs no settings."""
        monkeypatch.setattr(Path, "read_text", None)
        monkeypatch.setenv("HOME", "/nowhere")
        WeaveSpanExporter().shutdown()

    def test_shutdown_twice(self) -> None:
        """A second shutdown is harmless."""
        exporter = WeaveSpanExporter()
        exporter.shutdown()
        exporter.shutdown()


class TestRun:
    """`run_of_process`."""

    def test_no_run(self) -> None:
        """Without a run there is no association."""
        assert run_of_process("team/p", {}) is None

    def test_run_of_wandb(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The run that this process has open with wandb counts before the environment."""
        run = types.SimpleNamespace(id="r1", entity="team", project="p")
        monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(run=run))
        assert run_of_process("team/p", {"WANDB_RUN_ID": "other"}) == "team/p/r1"

    def test_run_of_another_project(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        """A run of another project is left out, with one warning."""
        run = types.SimpleNamespace(id="r1", entity="team", project="elsewhere")
        monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(run=run))
        assert [run_of_process("team/p", {}) for _ in range(3)] == [None] * 3
        assert len(caplog.records) == 1
        assert "team/elsewhere/r1" in caplog.text

    def test_run_that_would_be_refused(self) -> None:
        """An id that the server would refuse the whole batch for is left out."""
        assert run_of_process("team/p", {"WANDB_RUN_ID": "a/b"}) is None


class TestNames:
    """`object_id_of`."""

    @pytest.mark.parametrize(
        ("name", "expected"),
        [("AgentLoop.run", "AgentLoop.run"), ("f.<locals>.g", "f.-locals-.g"), ("GET /a", "GET-a"), ("///", "op")],
    )
    def test_letters(self, name, expected) -> None:
        """Letters that no object id may hold become hyphens."""
        assert object_id_of(name) == expected

    def test_long_names_stay_apart(self) -> None:
        """Two long names that begin alike have different ids of at most 128 letters."""
        first, second = object_id_of("a" * 200 + "1"), object_id_of("a" * 200 + "2")
        assert first != second
        assert max(len(first), len(second)) <= 128
