"""Compare what the verl plugin hooks in an installed verl with what is recorded of it.

    python scripts/drift.py                  # verl of the test environment; exit code 1 where it has changed
    python scripts/drift.py --path FOLDER    # the verl in this folder, with the rest of that environment
    python scripts/drift.py --record         # record it, after the hooks and their tests have been looked at

A verl of a version that is not recorded is compared with the newest that is.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 300

_NONE: Final = inspect.Parameter.empty

Functions = dict[str, dict[str, str]]

_KINDS: Final[dict[str, Callable[[Any], bool]]] = {
    "coroutine function": inspect.iscoroutinefunction,
    "async generator": inspect.isasyncgenfunction,
    "generator": inspect.isgeneratorfunction,
    "function": inspect.isfunction,
}


def probe() -> dict[str, Any]:
    """Return the version of the verl that can be imported here, and what the hooks are put on in it."""
    os.environ["OTEL_ROLLOUT_VERL"] = "off"
    import verl

    from otel_rollout.hooks import recorded
    from otel_rollout.hooks.verl import plugin, rollout_trace

    functions: Functions = {}
    # Module by module: Ray changes the signatures of classes that later ones make actors of.
    hooks: list[Any] = [*plugin.HOOKS, *rollout_trace.OPS]
    modules = list(dict.fromkeys(hook.module for hook in hooks))
    for hook in sorted(hooks, key=lambda hook: modules.index(hook.module)):
        try:
            found = describe(hook, importlib.import_module(hook.module))
        except ImportError as error:
            found = {"kind": f"missing: {error}"}
        functions[recorded.key_of(hook)] = found
    return {"version": verl.__version__, "functions": functions}


def describe(hook: Any, module: Any) -> dict[str, str]:
    """Return the record of a hook's target in an imported module without hooks."""
    from otel_rollout.hooks import recorded
    from otel_rollout.record.signature import read_signature

    *path, name = hook.target.split(".")
    try:
        found = vars(functools.reduce(getattr, path, module))[name]
    except (AttributeError, KeyError):
        return {"kind": "missing"}
    function = getattr(found, "__func__", found)
    if not inspect.isfunction(function):
        return {"kind": type(function).__name__}
    kinds = [type(found).__name__] if function is not found else []
    kinds.append(next(kind for kind, test in _KINDS.items() if test(function)))
    shown = read_signature(function)
    bare = [
        parameter.replace(
            annotation=inspect.Parameter.empty,
            # A signature is read as code: a class's form isn't.
            default=Ellipsis
            if isinstance(parameter.default, type) and parameter.default is not _NONE
            else parameter.default,
        )
        for parameter in shown.parameters.values()
    ]
    text = str(shown.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    facts = {"kind": " ".join(kinds), "signature": text}
    if getattr(hook, "lost_unknown", ""):
        facts["digest"] = recorded.digest(function, hook.module)
    return facts


def compare(known: Functions, found: Functions) -> list[str]:
    """Return the changes, one line for each fact.

    Args:
        known: The recorded facts.
        found: The installed package's facts.
    """
    changes = []
    for key in sorted(known.keys() | found.keys()):
        before, after = known.get(key, {}), found.get(key, {})
        for fact in ("kind", "signature", "digest"):
            old, new = before.get(fact), after.get(fact)
            if old == new or (fact != "kind" and after.get("kind", "").startswith("missing")):
                continue
            changes.append(f"{key}: its body has changed" if fact == "digest" else f"{key}: {fact} {old} → {new}")
    return changes


def installed(python: Path, path: Path | None) -> dict[str, Any]:
    """Return the findings of `probe` in another Python.

    Args:
        python: The interpreter of an environment with verl's dependencies.
        path: A folder with another verl.

    Raises:
        SystemExit: It has no verl that can be imported.
    """
    import otel_rollout

    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "PYTHON"))}
    environment.update({"VERL_USE_EXTERNAL_PLUGINS": "none", "RAY_AUTH_MODE": "disabled"})
    command = [str(python), str(Path(__file__).resolve()), "--probe"]
    with tempfile.TemporaryDirectory() as folder:
        # As if otel-rollout was installed there.
        info = Path(folder) / "otel_rollout-0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: otel-rollout\nVersion: 0\n")
        (Path(folder) / "otel_rollout").symlink_to(Path(otel_rollout.__file__).parent)
        environment["PYTHONPATH"] = os.pathsep.join(map(str, (*([path] if path else []), folder)))
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS)
    if done.returncode:
        sys.exit(f"{python} has no verl to compare:\n{done.stderr[-2000:]}")
    content: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return content


def main() -> int:
    """Compare, report the changes, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, help="an environment with verl's dependencies (default: that of tests)")
    parser.add_argument("--path", type=Path, help="a folder with another verl")
    parser.add_argument("--record", action="store_true", help="write what is found into the repository")
    parser.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.probe:
        print(json.dumps(probe()))
        return 0
    sys.path.insert(0, str(ROOT))
    from otel_rollout.hooks import recorded
    from scripts import environments

    found = installed(options.python or environments.ensure("verl") / "bin" / "python", options.path)
    version, known = found["version"], recorded.read("verl")
    if options.record:
        later = {key: facts["later"] for key, facts in known.get(version, {}).items() if "later" in facts}
        known[version] = found["functions"]
        for key, digests in later.items():
            known[version].get(key, {})["later"] = digests
        recorded.path_of("verl").write_text(json.dumps(dict(sorted(known.items())), indent=1, sort_keys=True) + "\n")
        print(f"verl {version}: recorded")
        return 0
    against = version if version in known else max(known, key=lambda each: [int(part) for part in each.split(".")])
    changes = compare(known[against], found["functions"])
    for change in changes:
        print(change)
    print(f"verl {version}: {len(changes)} changes since {against}" if changes else f"verl {version}: as recorded")
    return 1 if changes else 0


if __name__ == "__main__":
    sys.exit(main())
