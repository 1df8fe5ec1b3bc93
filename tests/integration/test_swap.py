"""One program, several backends: with the environment alone changed, the same trees stand in each."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import otel_rollout
from otel_rollout import semconv
from tests.payload_values import read_payload
from tests.servers.span_trees import trees

pytestmark = pytest.mark.integration

PROJECT = "same-trees"


class Op(NamedTuple):
    """What every backend must have of a span, in one form."""

    name: str
    tags: tuple[Any, ...]
    has_failed: bool
    given: Any
    result: Any
    children: tuple[Any, ...]


def tree(name: str, tags: Any, has_failed: bool, given: Any, result: Any, children: list[Op]) -> Op:
    """Return a span with those inside it; siblings that ran at the same time in an order of their own."""
    step, sample, rollout, validate = tags
    same = (int(step), str(sample), int(rollout), str(validate).lower())
    return Op(name, same, has_failed, said(given), said(result), tuple(sorted(children, key=repr)))


def said(payload: Any) -> Any:
    """Return a payload with the last message's text in place of messages, of which each backend draws its own form."""
    if not isinstance(payload, dict):
        return payload
    messages = payload.get("messages") or [choice["message"] for choice in payload.get("choices", ())]
    text = messages[-1]["content"] if messages else payload.get("prompt_text", payload.get("response_text"))
    if text is None:
        return payload
    written = ("messages", "choices", "prompt_text", "response_text")
    return {"said": text, **{key: value for key, value in payload.items() if key not in written}}


def from_phoenix(phoenix: Any) -> list[Op]:
    """Read the trees back from Phoenix."""

    def read(node: Any) -> Op:
        found = node.attributes
        return tree(
            node.name,
            [found[key] for key in semconv.TAGS[:4]],
            node.span["status_code"] == "ERROR",
            parsed(found, "input.value"),
            parsed(found, "output.value"),
            [read(child) for child in node.children],
        )

    return sorted((read(root) for root in trees(phoenix.api.wait_for_spans(PROJECT, 42)).values()), key=repr)


def words(payload: Any) -> Any:
    """Return what a root was given or gave, of the forms that MLflow and Weave draw: messages, or beside the reward."""
    if not isinstance(payload, dict):
        return payload
    messages = payload.get("messages") or [choice["message"] for choice in payload.get("choices", ())]
    # A text of the program's own stands beside the model's last words.
    own = payload.get("output", payload.get("value"))
    return messages[0]["content"] if messages and own is None else own


def from_mlflow(uri: str) -> list[Op]:
    """Read the trees back from MLflow's store, with its own client."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlflow

        client = mlflow.MlflowClient(tracking_uri=uri)
        experiment = client.get_experiment_by_name(PROJECT)
        traces = client.search_traces(locations=[experiment.experiment_id], max_results=100)

    def read(span: Any, trace: Any) -> Op:
        tags = trace.info.tags
        return tree(
            span.name,
            [tags[key] for key in ("step", "sample_index", "rollout_n", "validate")],
            span.status.status_code.value.endswith("ERROR"),
            span.inputs if span.parent_id else words(span.inputs),
            span.outputs if span.parent_id else words(span.outputs),
            [read(child, trace) for child in trace.data.spans if child.parent_id == span.span_id],
        )

    return sorted(
        (read(span, trace) for trace in traces for span in trace.data.spans if span.parent_id is None), key=repr
    )


def from_weave(server: Any) -> list[Op]:
    """Read the trees back from the Weave trace server."""
    calls = server.calls(f"team/{PROJECT}")

    def read(call: Any) -> Op:
        found = call["attributes"]
        given, result = call["inputs"], call["output"]
        # Weave's inputs are an object.
        if set(given) == {"input"}:
            given = given["input"]
        if call["parent_id"] is None:
            given, result = words(given), words(result)
        return tree(
            call["op_name"].rpartition("/")[2].partition(":")[0],
            [found[key] for key in ("step", "sample_index", "rollout_n", "validate")],
            bool(call["exception"]),
            given,
            result,
            [read(child) for child in calls if child["parent_id"] == call["id"]],
        )

    return sorted((read(call) for call in calls if call["parent_id"] is None), key=repr)


def from_folder(folder: Path) -> list[Op]:
    """Read the trees back from a trace folder."""

    def read(span: Any, spans: list[Any]) -> Op:
        found = span.attributes
        return tree(
            span.name,
            [found[key] for key in semconv.TAGS[:4]],
            span.status.status_code.name == "ERROR",
            parsed(found, "input.value"),
            parsed(found, "output.value"),
            [read(child, spans) for child in spans if child.parent and child.parent.span_id == span.context.span_id],
        )

    trajectories = [trajectory.spans for trajectory in otel_rollout.read_trajectories(folder)]
    return sorted((read(span, spans) for spans in trajectories for span in spans if span.parent is None), key=repr)


def parsed(attributes: Any, key: str) -> Any:
    """Return what a payload says."""
    return read_payload(attributes, key) if key in attributes else None


class TestSwap:
    """The same program, run again with other variables."""

    def test_the_same_trees_stand_in_each_backend(self, programs, phoenix, weave_server, otlp, tmp_path):
        """Names, tags, errors, inputs, outputs and nesting are the same in Phoenix, MLflow, Weave and a folder."""
        uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
        # What mlflow imports warns of its own use of SQLAlchemy.
        mlflow = {"OTEL_TRACES_EXPORTER": "mlflow", "MLFLOW_TRACKING_URI": uri, "PYTHONWARNINGS": "ignore"}

        programs.run("group", PROJECT, **otlp(phoenix, "http/protobuf"))
        programs.run("group", PROJECT, **mlflow)
        programs.run("group", PROJECT, OTEL_TRACES_EXPORTER="weave", WANDB_ENTITY="team", **weave_server.variables)
        programs.run("group", PROJECT, OTEL_TRACES_EXPORTER="file", OTEL_ROLLOUT_DIR=str(tmp_path / "traces"))

        in_phoenix = from_phoenix(phoenix)
        assert len(in_phoenix) == 7
        assert from_mlflow(uri) == in_phoenix
        assert from_weave(weave_server) == in_phoenix
        assert from_folder(tmp_path / "traces") == in_phoenix
