"""A new backend is one folder in exporters/ and its entry point in pyproject.toml: here the two are compared."""

from __future__ import annotations

import copy
import importlib
from pathlib import Path

import pytest

from scripts.import_contracts import contracts
from tests.installed import EXPORTERS

tomllib = pytest.importorskip("tomllib")

ROOT = Path(__file__).resolve().parent.parent
CORE_NAMES = {"console", "otlp"}
"""The names that OpenTelemetry gives: the core finds these without an entry point."""

FOLDERS = [folder.name for folder in EXPORTERS]


@pytest.fixture
def pyproject():
    """The parsed pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def differences(folders, pyproject):
    """Return the lists of pyproject.toml that don't name exactly these folders' backends."""
    project = pyproject["project"]
    backends = {folder.removeprefix("otel_rollout_") for folder in folders} - CORE_NAMES
    extras = project["optional-dependencies"]
    entry_points = project["entry-points"]["opentelemetry_traces_exporter"]
    in_all = set(extras["all"][0].partition("[")[2].rstrip("]").split(","))
    faults = {
        "entry points": {name: entry.partition(":")[0] for name, entry in entry_points.items()}.items()
        ^ {name: f"otel_rollout_{name}" for name in backends}.items(),
        "the extra `all`": backends.intersection(extras) - in_all,
    }
    return {name: fault for name, fault in faults.items() if fault}


class TestBackendFolders:
    """exporters/ and pyproject.toml."""

    def test_every_folder_has_its_entry_point(self, pyproject):
        """The entry points name the folders of exporters/, and no others; a backend's extra is part of `all`."""
        assert differences(FOLDERS, pyproject) == {}

    def test_a_folder_without_an_entry_point_is_found(self, pyproject):
        """A folder that pyproject.toml doesn't name fails in one place: there is no other."""
        assert differences([*FOLDERS, "otel_rollout_new"], pyproject) == {"entry points": {("new", "otel_rollout_new")}}

    def test_an_entry_point_without_a_folder_is_found(self, pyproject):
        """A line that outlived its folder fails too."""
        pyproject = copy.deepcopy(pyproject)
        pyproject["project"]["entry-points"]["opentelemetry_traces_exporter"]["old"] = "otel_rollout_old:Old"

        assert differences(FOLDERS, pyproject) == {"entry points": {("old", "otel_rollout_old")}}

    def test_the_contracts_of_imports_have_every_folder(self):
        """A new folder may import neither another exporter nor be imported by the core, without a line for it."""
        checked = {contract["type"]: contract for contract in contracts(EXPORTERS[0].parent)["contracts"]}
        assert checked["independence"]["modules"] == checked["forbidden"]["forbidden_modules"] == FOLDERS

    @pytest.mark.parametrize("folder", FOLDERS)
    def test_a_folder_is_a_package_of_its_name(self, folder):
        """Each folder is called `otel_rollout_NAME` and can be imported without its backend."""
        assert folder.startswith("otel_rollout_")
        importlib.import_module(folder)

    def test_entry_points_name_what_the_package_exports(self, pyproject):
        """Each entry point's class stands in its package's `__all__`."""
        for entry in pyproject["project"]["entry-points"]["opentelemetry_traces_exporter"].values():
            package, _, name = entry.partition(":")
            assert name in importlib.import_module(package).__all__
