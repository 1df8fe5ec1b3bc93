"""A new backend is one folder in exporters/ and its lines in pyproject.toml: here the two are compared."""

import copy
import importlib
from pathlib import Path

import pytest

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
    project, tool = pyproject["project"], pyproject["tool"]
    backends = {folder.removeprefix("otel_rollout_") for folder in folders} - CORE_NAMES
    extras = project["optional-dependencies"]
    entry_points = project["entry-points"]["opentelemetry_traces_exporter"]
    in_all = set(extras["all"][0].partition("[")[2].rstrip("]").split(","))
    faults = {
        "wheel packages": set(tool["hatch"]["build"]["targets"]["wheel"]["packages"])
        ^ {"otel_rollout", *(f"exporters/{folder}" for folder in folders)},
        "mypy packages": set(tool["mypy"]["packages"]) ^ {"otel_rollout", *folders},
        "entry points": {name: entry.partition(":")[0] for name, entry in entry_points.items()}.items()
        ^ {name: f"otel_rollout_{name}" for name in backends}.items(),
        "import-linter's packages": set(tool["importlinter"]["root_packages"]) ^ {"otel_rollout", *folders},
        **{
            f"import-linter: {contract['name']}": set(contract[modules]) ^ set(folders)
            for contract in tool["importlinter"]["contracts"]
            for modules in ("modules", "forbidden_modules")
            if modules in contract
        },
        "extras": backends - set(extras),
        "the extra `all`": backends - in_all,
    }
    return {name: fault for name, fault in faults.items() if fault}


class TestBackendFolders:
    """exporters/ and pyproject.toml."""

    def test_every_folder_has_its_lines(self, pyproject):
        """The wheel, mypy, the entry points and the extras name the folders of exporters/, and no others."""
        assert differences(FOLDERS, pyproject) == {}

    def test_a_folder_without_lines_is_found(self, pyproject):
        """A folder that pyproject.toml doesn't know fails in every list."""
        found = differences([*FOLDERS, "otel_rollout_new"], pyproject)

        lists = {"wheel packages", "mypy packages", "entry points", "extras", "the extra `all`"}
        assert {name for name in found if not name.startswith("import-linter")} == lists
        assert sum(name.startswith("import-linter") for name in found) == len(("packages", "forbidden", "independence"))

    def test_lines_without_a_folder_are_found(self, pyproject):
        """Lines that outlived their folder fail too."""
        pyproject = copy.deepcopy(pyproject)
        pyproject["project"]["entry-points"]["opentelemetry_traces_exporter"]["old"] = "otel_rollout_old:Old"

        assert differences(FOLDERS, pyproject) == {"entry points": {("old", "otel_rollout_old")}}

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
