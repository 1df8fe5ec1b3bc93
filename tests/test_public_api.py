"""The public names, and the signatures of those that verl's users know."""

from __future__ import annotations

import inspect
import pickle
import pkgutil
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import otel_rollout
from otel_rollout import errors, testing

EMPTY = inspect.Parameter.empty

# From verl 0.9.1, verl/utils/rollout_trace.py.
VERL_SIGNATURES: list[tuple[Any, list[tuple[str, Any]]]] = [
    (
        otel_rollout.rollout_trace_attr,
        [
            ("sample_index", None),
            ("step", None),
            ("rollout_n", None),
            ("name", "rollout_trace"),
            ("validate", False),
            ("trace", True),
        ],
    ),
    (
        otel_rollout.RolloutTraceConfig.init,
        [
            ("project_name", EMPTY),
            ("experiment_name", EMPTY),
            ("backend", EMPTY),
            ("token2text", False),
            ("max_samples_per_step_per_worker", None),
        ],
    ),
    (otel_rollout.RolloutTraceConfig.get_instance, []),
    (otel_rollout.RolloutTraceConfig.get_backend, []),
    (otel_rollout.RolloutTraceConfig.get_client, []),
    (otel_rollout.RolloutTraceConfig.enable_token2text, []),
    (otel_rollout.RolloutTraceConfig.reset, []),
]


def public_names(module: ModuleType) -> set[str]:
    """Return what a module offers: names without an underscore that are no modules and no future imports."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, ModuleType) and name != "annotations"
    }


class TestExports:
    """What the package offers."""

    def test_all_is_sorted_and_complete(self) -> None:
        """`__all__` is sorted, and names all that the package offers and nothing else."""
        names = otel_rollout.__all__
        assert names == sorted(names)
        for name in names:
            # Some are imported on first use.
            assert hasattr(otel_rollout, name), name
        assert set(names) == public_names(otel_rollout) | {"__version__"}

    def test_what_reads_trace_folders_is_imported_on_first_use(self) -> None:
        """A trainer that only writes traces does not pay for what reads them."""
        program = (
            "import sys, otel_rollout; loaded = {n for n in sys.modules if 'trace_folder' in n};"
            "assert not loaded, loaded; otel_rollout.read_trajectories, otel_rollout.RecordedTrajectory"
        )
        done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, "")

    def test_a_public_name_is_no_submodule(self) -> None:
        """The import of a submodule never takes the place of a function or class."""
        submodules = {module.name for module in pkgutil.iter_modules(otel_rollout.__path__)}
        assert submodules & set(otel_rollout.__all__) == set()

    def test_the_package_is_pickled_by_reference(self) -> None:
        """A function that uses the package as a global goes to another process, as Ray sends it."""
        cloudpickle = pytest.importorskip("cloudpickle")
        namespace: dict[str, Any] = {"otel_rollout": otel_rollout}
        exec("def traced(): return otel_rollout", namespace)
        assert pickle.loads(cloudpickle.dumps(namespace["traced"]))() is otel_rollout

    def test_an_unknown_name_is_an_attribute_error(self) -> None:
        """A name that is not there is reported as by any module."""
        with pytest.raises(AttributeError, match=r"otel_rollout.*no_such_name"):
            _ = otel_rollout.no_such_name

    def test_every_public_name_is_documented(self) -> None:
        """Every public function and class has a docstring that begins with one sentence on one line."""
        for name in otel_rollout.__all__:
            value = getattr(otel_rollout, name)
            if callable(value):
                assert value.__doc__, name
                assert value.__doc__.splitlines()[0].endswith((".", "`.", ":")), name

    def test_errors(self) -> None:
        """Every error of the package is public, and caught by its common base."""
        for name in errors.__all__:
            error = getattr(errors, name)
            assert getattr(otel_rollout, name) is error
            assert issubclass(error, otel_rollout.RolloutTraceError)

    def test_testing(self) -> None:
        """The module for tests has a sorted `__all__` of its own."""
        assert testing.__all__ == sorted(testing.__all__)
        assert all(hasattr(testing, name) for name in testing.__all__)

    def test_version(self) -> None:
        """The version is that of the installed distribution."""
        from importlib.metadata import version

        assert otel_rollout.__version__ == version("otel-rollout")


class TestVerlSignatures:
    """The names that verl's users know take what they take in verl."""

    @pytest.mark.parametrize(
        ("function", "parameters"), VERL_SIGNATURES, ids=lambda value: getattr(value, "__qualname__", "")
    )
    def test_same_parameters(self, function: Any, parameters: list[tuple[str, Any]]) -> None:
        """Names, order and defaults are verl's, and every argument may be given by position or by name."""
        signature = inspect.signature(function)
        assert [(name, parameter.default) for name, parameter in signature.parameters.items()] == parameters
        assert {parameter.kind for parameter in signature.parameters.values()} <= {
            inspect.Parameter.POSITIONAL_OR_KEYWORD
        }

    def test_init_begins_with_verls_arguments(self) -> None:
        """`init` takes verl's arguments first, in verl's order; the backend may be left to the environment."""
        parameters = list(inspect.signature(otel_rollout.init).parameters.values())
        assert [(parameter.name, parameter.default) for parameter in parameters[:5]] == [
            ("project_name", EMPTY),
            ("experiment_name", EMPTY),
            ("backend", None),
            ("token2text", False),
            ("max_samples_per_step_per_worker", None),
        ]
        assert all(parameter.kind.name in ("KEYWORD_ONLY", "VAR_KEYWORD") for parameter in parameters[5:])

    def test_op_takes_the_function_alone(self) -> None:
        """`rollout_trace_op` works bare, as verl's does."""

        @otel_rollout.rollout_trace_op
        def op() -> int:
            return 1

        assert op() == 1

    def test_attributes_of_the_configuration(self) -> None:
        """The attributes that verl and its users read are there, tracing on or off."""
        names = {
            "backend",
            "client",
            "token2text",
            "project_name",
            "experiment_name",
            "max_samples_per_step_per_worker",
        }
        assert names <= set(vars(otel_rollout.RolloutTraceConfig.get_instance()))
