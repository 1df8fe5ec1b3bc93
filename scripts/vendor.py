"""Put the viewer's third-party modules into the tree: pinned npm packages, checked by SHA-256, with their licences.

python scripts/vendor.py            fetch the packages with npm, and write otel_rollout/look/view/static/vendor
python scripts/vendor.py --check    compare the tree with vendor/manifest.json; no network
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENDOR = ROOT / "otel_rollout" / "look" / "view" / "static" / "vendor"
TESTS = ROOT / "tests" / "view" / "vendor"
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Package:
    """A pinned npm package.

    Args:
        name: Its name at npm.
        version: Its version.
        licence: Its SPDX identifier.
        sha256: The checksum of its archive.
        files: The path in the package by the path under the folder of vendored files.
        folder: The folder of vendored files.
        types: The module that TypeScript finds the types of a vendored file in, by the file's path.
    """

    name: str
    version: str
    licence: str
    sha256: str
    files: dict[str, str]
    folder: Path = VENDOR
    types: dict[str, str] | None = None


_DIFF = ("diff/array", "diff/base", "diff/line", "diff/word", "util/params", "util/string")
_VIRTUAL = ("index", "ios-gesture", "lazy-measurements", "scroll-classifier", "utils")

PACKAGES = (
    Package(
        "preact",
        "11.2.0",
        "MIT",
        "3c4456766bd32b6b534d52bf4e9c2a29b33e7eedf6e96ed479300ba1a7888ebf",
        {"preact.js": "dist/preact.mjs", "preact_hooks.js": "hooks/dist/hooks.mjs"},
        types={"preact.js": "preact", "preact_hooks.js": "preact/hooks"},
    ),
    Package(
        "htm",
        "3.1.1",
        "Apache-2.0",
        "2425b9bee11409177bcabc7f32e319926fc6690c1701c0b257c88bdff2d5ba90",
        {"htm.js": "dist/htm.mjs"},
        types={"htm.js": "htm"},
    ),
    Package(
        "uplot",
        "1.6.32",
        "MIT",
        "4b8a8191e425658e3ea8c8c1314b0fc679c861ee3a1af2b20c7b16ba50b5133d",
        {"uplot.js": "dist/uPlot.esm.js", "uplot.css": "dist/uPlot.min.css"},
        types={"uplot.js": "uplot"},
    ),
    Package(
        "diff",
        "9.0.0",
        "BSD-3-Clause",
        "b898bf23c95594607576e25ddd4013f1d51ed0e862aaf0732815830c87b3b58f",
        {f"diff/{name}.js": f"libesm/{name}.js" for name in _DIFF},
        types={f"diff/{name}.js": f"diff/libesm/{name}.js" for name in _DIFF if name.startswith("diff/")},
    ),
    Package(
        "@tanstack/virtual-core",
        "3.19.11",
        "MIT",
        "61e75133db75f5bc1b1656a095e1a92387c0c3b24b5052f2cd9bf00283c5081d",
        {f"virtual_core/{name}.js": f"dist/esm/{name}.js" for name in _VIRTUAL},
        types={"virtual_core/index.js": "@tanstack/virtual-core"},
    ),
    Package(
        "axe-core",
        "4.14.1",
        "MPL-2.0",
        "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745",
        {"axe.js": "axe.min.js"},
        folder=TESTS,
    ),
)


def browser_text(text: str) -> str:
    """Return a module as a browser loads it by a relative address: no bare imports, no `process`, no source maps."""
    text = re.sub(r'(from\s*)"preact"', r'\1"./preact.js"', text)
    text = text.replace('process.env.NODE_ENV !== "production"', "false")
    return re.sub(r"\n?//# sourceMappingURL=\S+\n?", "\n", text)


def type_text(module: str, text: str) -> str:
    """Return the declaration next to a vendored module, from the package in web/node_modules."""
    default = "" if not re.search(r"export\s*(default\b|\{[^}]*\bas default\b)", text) else "export { default } "
    lines = [f'export * from "{module}";']
    if default:
        lines.append(f'{default}from "{module}";')
    return "\n".join(lines) + "\n"


def fetch(package: Package, folder: Path) -> dict[str, bytes]:
    """Return the files of a package's archive.

    Raises:
        SystemExit: The archive isn't the pinned one.
    """
    command = ["npm", "pack", "--silent", "--pack-destination", str(folder), f"{package.name}@{package.version}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    stem = package.name.lstrip("@").replace("/", "-")
    data = (folder / f"{stem}-{package.version}.tgz").read_bytes()
    if (found := hashlib.sha256(data).hexdigest()) != package.sha256:
        raise SystemExit(f"{package.name} {package.version}: its archive has the SHA-256 {found}, not {package.sha256}")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = [member for member in archive if member.isfile()]
        return {
            member.name.partition("/")[2]: file.read()
            for member in members
            if (file := archive.extractfile(member)) is not None
        }


def vendored(package: Package, archive: dict[str, bytes]) -> dict[str, str]:
    """Return the texts that a package puts into its folder, by path."""
    texts = {}
    for target, source in package.files.items():
        text = archive[source].decode()
        texts[target] = browser_text(text) if target.endswith(".js") and package.folder is VENDOR else text
        if module := (package.types or {}).get(target):
            texts[target.removesuffix(".js") + ".d.ts"] = type_text(module, text)
    licence = next(name for name in sorted(archive) if re.fullmatch(r"LICEN[CS]E(\.\w+)?", name, re.IGNORECASE))
    texts[f"licences/{package.name.lstrip('@').replace('/', '_')}.txt"] = archive[licence].decode()
    return texts


def write() -> None:
    """Fetch every package, and write its files and the manifest of each folder."""
    for folder in (VENDOR, TESTS):
        packages = []
        with tempfile.TemporaryDirectory() as downloads:
            for package in (one for one in PACKAGES if one.folder == folder):
                texts = vendored(package, fetch(package, Path(downloads)))
                for path, text in texts.items():
                    (folder / path).parent.mkdir(parents=True, exist_ok=True)
                    (folder / path).write_text(text, encoding="utf-8", newline="\n")
                packages.append(
                    {
                        "package": package.name,
                        "version": package.version,
                        "licence": package.licence,
                        "archive_sha256": package.sha256,
                        "files": {path: hashlib.sha256(text.encode()).hexdigest() for path, text in texts.items()},
                    }
                )
        (folder / MANIFEST).write_text(json.dumps(packages, indent=2) + "\n", encoding="utf-8", newline="\n")


def problems(folder: Path) -> list[str]:
    """Return the differences of a folder of vendored files from its manifest and the packages pinned here."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    pinned = {(one.name, one.version, one.sha256) for one in PACKAGES if one.folder == folder}
    found = []
    if {(one["package"], one["version"], one["archive_sha256"]) for one in manifest} != pinned:
        found.append(f"{folder / MANIFEST} names other packages than scripts/vendor.py")
    listed = {path: digest for one in manifest for path, digest in one["files"].items()}
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {MANIFEST}
    found += [f"{folder / path} is in no package" for path in sorted(there - set(listed))]
    for path, digest in listed.items():
        if path not in there:
            found.append(f"{folder / path} is missing")
        elif hashlib.sha256((folder / path).read_bytes()).hexdigest() != digest:
            found.append(f"{folder / path} has been changed")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare the tree with the manifests")
    if not parser.parse_args().check:
        write()
    found = problems(VENDOR) + problems(TESTS)
    print("\n".join(found) or "the vendored modules are those of scripts/vendor.py")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
