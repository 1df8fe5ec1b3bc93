"""A run as static pages: what the server would answer, as scripts that pages from the disk can load."""

from __future__ import annotations

import base64
import hashlib
import json
import posixpath
import re
import shutil
import tempfile
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus

from otel_rollout.catalog.group_summary import GroupSummary
from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.errors import ConfigurationError, NoTracesError
from otel_rollout.look.view.answers import json_bytes
from otel_rollout.look.view.endpoints import Endpoints, name_in_address
from otel_rollout.look.view.run_state import RunState

PAGE: Final = "index.html"
PREFIX: Final = "otel-rollout/"
"""The beginning of a module's name in the import map."""

_IMPORT: Final = re.compile(r"""(\b(?:from|import)\s*\(?\s*)(["'])(\.{1,2}/[^"'\n]+)\2""")
_START: Final = re.compile(r'<script type="module" src="([^"]+)"></script>')
_CLASSIC: Final = re.compile(r'<script src="([^"]+)"></script>')
_HEAD: Final = re.compile(r"<head>", re.IGNORECASE)
_NOT_COPIED: Final = (".js", ".ts", ".json", ".html")


def write_pages(static: Path, folder: Path, first_script: str) -> None:
    """Write the pages and what they need, except data.

    Args:
        static: The pages' own files.
        folder: A folder that exists.
        first_script: The address of the script that has the first data; it runs before the modules.
    """
    page = (static / PAGE).read_text(encoding="utf-8")
    start = _START.search(page)
    if start is None:
        raise ValueError(f"{static / PAGE} starts no module")
    imports = json.dumps({"imports": _import_map(static, start[1])}, indent=0)
    begin = f'import "{PREFIX}{start[1]}";'
    scripts = (
        f'<script src="{first_script}"></script>\n'
        f'<script type="importmap">{imports}</script>\n<script type="module">{begin}</script>'
    )
    page = page[: start.start()] + scripts + page[start.end() :]
    policy = (
        "default-src 'none'; img-src 'self' data: file:; style-src 'self' file:; font-src 'self' file:; "
        f"script-src 'self' file: data: {_hash(imports)} {_hash(begin)}; base-uri 'none'; form-action 'none'"
    )
    meta = f'<head>\n    <meta http-equiv="Content-Security-Policy" content="{policy}">'
    (folder / PAGE).write_text(_HEAD.sub(lambda _: meta, page, count=1), encoding="utf-8")
    classic = set(_CLASSIC.findall(page)) - {first_script}
    for path in sorted(static.rglob("*")):
        name = path.relative_to(static).as_posix()
        if path.is_file() and (not name.endswith(_NOT_COPIED) or name in classic):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / name)


def _import_map(static: Path, start: str) -> dict[str, str]:
    """Return the names of a module and of all that it leads to, with their texts as data: addresses."""
    addresses: dict[str, str] = {}
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if PREFIX + name in addresses:
            continue
        folder = posixpath.dirname(name)

        def named(found: re.Match[str], folder: str = folder) -> str:
            target = posixpath.normpath(posixpath.join(folder, found[3]))
            if target.startswith("..") or not target.endswith(".js") or not (static / target).is_file():
                # A type of a comment.
                return found[0]
            waiting.append(target)
            return f"{found[1]}{found[2]}{PREFIX}{target}{found[2]}"

        text = _IMPORT.sub(named, (static / name).read_text(encoding="utf-8"))
        encoded = base64.b64encode(text.encode()).decode()
        addresses[PREFIX + name] = f"data:text/javascript;charset=utf-8;base64,{encoded}"
    return addresses


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


MARK: Final = "otel-rollout-export.json"
"""The marker file of an export; only a folder that has it is replaced."""
DATA: Final = "data"
MAX_NAME: Final = 120
"""A file's name has at most 255 bytes; longer ones are cut, and a hash distinguishes them."""
KEPT_OF_NAME: Final = 80
# Capitals too: some file systems ignore case.
_OTHERS: Final = re.compile(rb"[^a-z0-9_.-]")


class Exported:
    """The counts of an export.

    Args:
        steps: The number of steps.
        trajectories: The number of trajectories.
        redacted: The secrets that redaction replaced in them, when they were recorded.
        bytes: The size of the folder.
    """

    def __init__(self) -> None:
        self.steps = self.trajectories = self.redacted = self.bytes = 0


def export_run(
    state: RunState,
    static: Path,
    out: Path,
    steps: int | Container[int | None] | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Exported:
    """Write the pages of a run into a folder; it appears once it is whole.

    Args:
        state: The run.
        static: The pages' own files.
        out: The folder; an export that is there is replaced.
        steps: The steps; None for all.
        on_progress: Called with the number of trajectories that are written, and of all.

    Raises:
        ConfigurationError: The folder has other files, or no step matches.
        NoTracesError: There are no traces.
    """
    out = out.resolve()
    _check(out)
    chosen = [each for each in state.steps(patience=None) if _is_chosen(each, steps)]
    if not chosen:
        raise NoTracesError("no step matches")
    out.parent.mkdir(parents=True, exist_ok=True)
    # Private, as traces are.
    new = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        write_pages(static, new, f"{DATA}/{data_name('run')}.js")
        exported = _write_data(Endpoints(state), chosen, new / DATA, on_progress)
        (new / MARK).write_bytes(json_bytes({"folders": list(map(str, state.folders)), "steps": exported.steps}))
        exported.bytes = sum(path.stat().st_size for path in new.rglob("*") if path.is_file())
        if out.exists():
            old = new.with_name(f"{new.name}-old")
            out.rename(old)
            new.rename(out)
            shutil.rmtree(old)
        else:
            new.rename(out)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return exported


def data_name(path: str) -> str:
    """Return the name of an answer's script, as `exportedName` of the pages has it.

    Args:
        path: The answer's address after `api/`.
    """
    name = _OTHERS.sub(lambda found: b"~%02x" % ord(found[0]), path.encode()).decode()
    return name if len(name) <= MAX_NAME else f"{name[:KEPT_OF_NAME]}~{_fnv1a(name.encode()):016x}"


def script_of(name: str, value: Any) -> bytes:
    """Return a script that adds an answer to the pages' data.

    Args:
        name: Its name.
        value: The answer.
    """
    # A text for JSON.parse: as a literal, a key `__proto__` would be more than a key. Without `<` no tag can begin.
    text = json_bytes(json_bytes(value).decode()).replace(b"<", b"\\u003c")
    return b'(window.otelRolloutData??={})["%b"]=JSON.parse(%b);\n' % (name.encode(), text)


def _fnv1a(data: bytes) -> int:
    """Return the 64-bit FNV-1a hash; in JavaScript it takes three lines and is synchronous."""
    number = 0xCBF29CE484222325
    for byte in data:
        number = (number ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return number


def _check(out: Path) -> None:
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / MARK).is_file())):
        raise ConfigurationError(f"--export {out}: it exists and is no export; name a new folder, or remove it first")


def _is_chosen(step: StepSummary, steps: int | Container[int | None] | None) -> bool:
    if steps is None:
        return True
    return step.step == steps if isinstance(steps, int) else step.step in steps


def _write_data(
    endpoints: Endpoints, steps: list[StepSummary], folder: Path, on_progress: Callable[[int, int], None]
) -> Exported:
    folder.mkdir(exist_ok=True)
    exported = Exported()
    total = sum(step.trajectories for step in steps)

    def write(path: str, value: Any) -> None:
        name = data_name(path)
        (folder / f"{name}.js").write_bytes(script_of(name, value))

    run = endpoints.run({}, {})
    write("run", {**run, "steps": steps, "is_live": False, "progress": None, "waiting": None})
    write(
        "live",
        {"trajectories": [], "open": 0, "waits": [], "why": "these pages are an export, which no process changes"},
    )
    write("findings", endpoints.findings({}, {}) if len(steps) == len(run["steps"]) else {"findings": []})
    known = {step.identity for step in steps}
    on_progress(0, total)
    for step in steps:
        query = _query_of(step)
        text = _as_text(query)
        place = name_in_address(step.step)
        path = {"step": place}
        answer = endpoints.step(path, query)
        write(f"step/{place}{text}", answer)
        write(f"step/{place}/timeline{text}", endpoints.timeline(path, query))
        write(f"findings{_as_text({'step': place, **query})}", endpoints.findings({}, {"step": place, **query}))
        for group in answer["groups"]:
            sample = name_in_address(group.sample_index)
            of_group = endpoints.group(path, {**query, "sample": sample})
            of_group["other_steps"] = [each for each in of_group["other_steps"] if _key(each) in known]
            write(f"step/{place}/group{_as_text({**query, 'sample': sample})}", of_group)
            for trace_id in group.trace_ids:
                for name, value in _trajectory(endpoints, trace_id):
                    write(name, value)
                exported.trajectories += 1
                on_progress(exported.trajectories, total)
        exported.steps += 1
        exported.redacted += step.redacted
    return exported


def _trajectory(endpoints: Endpoints, trace_id: str) -> Iterator[tuple[str, Any]]:
    """Yield a trajectory and then each of its truncated spans as a whole, with their names."""
    path = {"trace_id": trace_id}
    answer = endpoints.trajectory(path, {})
    yield f"trajectory/{trace_id}", answer
    for span in answer["spans"]:
        if span["cut"] or any(event["cut"] for event in span["events"]):
            span_id = span["span_id"]
            yield f"trajectory/{trace_id}/span/{span_id}", endpoints.span({**path, "span_id": span_id}, {})


def _key(group: GroupSummary) -> tuple[Any, ...]:
    return group.step, group.validate, group.experiment_name, group.run_id


def _query_of(step: StepSummary) -> dict[str, str]:
    """Return the query parameters of a step, in the order of the pages' addresses."""
    query = {"validate": "1"} if step.validate else {}
    if step.experiment_name:
        query["experiment"] = str(step.experiment_name)
    if step.run_id is not None:
        query["run"] = step.run_id
    return query


def _as_text(query: Mapping[str, str]) -> str:
    """Return parameters as the pages write them: as JavaScript's URLSearchParams, without empty ones."""
    known = [(key, quote_plus(value, safe="*").replace("~", "%7E")) for key, value in query.items() if value]
    return "?" + "&".join(f"{key}={value}" for key, value in known) if known else ""
