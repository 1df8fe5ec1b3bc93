"""Reads calls back with the current weave client; run by the interpreter of the `weave_client` environment.

Each line of the input is a question in JSON, each line of the output its answer.
"""

import functools
import json
import os
import sys
from typing import Any

answers = sys.stdout
sys.stdout = sys.stderr  # weave prints

import weave  # noqa: E402
from pydantic import TypeAdapter  # noqa: E402
from weave.trace.weave_client import WeaveClient  # noqa: E402
from weave.vendor.weave_server_sdk.types.v2_call_complete_params import V2CallCompleteParams  # noqa: E402

FIELDS = (
    "id", "trace_id", "parent_id", "display_name", "op_name", "started_at", "ended_at", "attributes", "inputs",
    "output", "summary", "exception", "thread_id", "turn_id", "wb_run_id", "wb_run_step",
)  # fmt: skip


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


@functools.cache
def first_client() -> Any:
    return weave.init("team/reader")


@functools.cache
def client_of(project: str) -> Any:
    entity, name = project.split("/")
    return WeaveClient(entity, name, first_client().server, ensure_project_exists=False)


def calls(project: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    client = client_of(project)
    found = []
    for call in client.get_calls(**arguments):
        record = {field: plain(getattr(call, field, None)) for field in FIELDS}
        record["func_name"] = call.func_name
        found.append(record)
    return found


def children(project: str, call_id: str) -> list[str]:
    client = client_of(project)
    return [child.id for child in client.get_call(call_id).children()]


def ops(project: str) -> list[str]:
    client = client_of(project)
    request = {"project_id": project, "filter": {"is_op": True}}
    return [found.object_id for found in client.server.objs_query(request).objs]


def problems(batch: list[dict[str, Any]]) -> str:
    """Return the errors of a batch by weave's own request type; empty if there are none."""
    try:
        checked = TypeAdapter(V2CallCompleteParams).validate_python({"entity": "team", "batch": batch})
        list(checked["batch"])  # validated only when it is read
    except ValueError as error:
        return str(error)
    return ""


ANSWERS = {"calls": calls, "children": children, "ops": ops, "problems": problems}

for line in sys.stdin:
    question = json.loads(line)
    try:
        answer = {"answer": ANSWERS[question["ask"]](*question["with"])}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), file=answers, flush=True)

os._exit(0)  # weave waits for its idle threads at exit, half a minute
