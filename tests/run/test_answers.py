"""What `ls --json`, `stats --json` and the viewer's pages answer is what plain Python computes of the spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from otel_rollout.cli.main import main
from otel_rollout.facts import INFERRED
from otel_rollout.look.view import RunState, make_application
from tests.run.random_runs import naive_groups, naive_steps
from tests.run.random_spans import write_run

pytest.importorskip("starlette")
testclient = pytest.importorskip("starlette.testclient")

SEEDS = [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 50))]
OF_FILES = ("bytes", "stored_bytes")
"""No span has them."""
AMOUNTS = {4: ("mean", "p50", "p99", "highest"), 3: ("lowest", "mean", "highest"), 2: ("calls", "errors")}


def as_json(figure: Any, name: str = "") -> Any:
    """Return a figure as JSON has it, up to rounding."""
    if isinstance(figure, Mapping):
        return {key: as_json(value, "amount") for key, value in figure.items()}
    if isinstance(figure, tuple) and name in ("turns", "tokens", "seconds", "staleness", "amount"):
        return {key: as_json(value) for key, value in zip(AMOUNTS[len(figure)], figure, strict=True)}
    if isinstance(figure, tuple):
        return list(map(as_json, figure))
    return pytest.approx(figure, rel=1e-9, abs=1e-12) if isinstance(figure, float) else figure


def expected_of(figures: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return figures as rows of JSON, without those of files."""
    return [{name: as_json(each[name], name) for name in each if name not in OF_FILES} for each in figures]


def without_files(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows without the figures of files."""
    return [{name: value for name, value in row.items() if name not in OF_FILES} for row in rows]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_answer(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each figure of each step, group and trajectory, and the sums over the folder."""
    told = write_run(tmp_path, seed)
    steps, groups = naive_steps(told), naive_groups(told)

    def answer(*command: str) -> list[Any]:
        assert main([*command, "--json"]) == 0
        return list(map(orjson.loads, capsys.readouterr().out.splitlines()))

    assert without_files(answer("ls", str(tmp_path))) == expected_of(steps)

    (stats,) = answer("stats", str(tmp_path))
    assert without_files(stats["steps"]) == expected_of(steps)
    for total in ("trajectories", "rootless", "errors", "spans", "redacted"):
        assert stats[total] == sum(step[total] for step in steps), total

    by_id = {each.trace_id: each for each in told}
    for step in sorted({each.step for each in told if each.step is not None}):
        rows = answer("ls", str(tmp_path), "--step", str(step))
        assert {row["trace_id"] for row in rows} == {each.trace_id for each in told if each.step == step}
        for row in rows:
            made = by_id[row["trace_id"]]
            for name in (
                "reward",
                "status",
                "turns",
                "output_tokens",
                "spans",
                "start_time",
                "end_time",
                "fate",
                "redacted",
            ):
                assert row[name] == getattr(made, name), name
            assert row["tools"] == as_json(made.tools)
        for validate in (False, True):
            sums = [each for each in steps if (each["step"], each["validate"]) == (step, validate)]
            of_step = [row for row in rows if row["validate"] is validate]
            sizes = [sum(row[name] for row in of_step) for name in OF_FILES]
            known = [each for each in stats["steps"] if (each["step"], each["validate"]) == (step, validate)]
            assert len(known) == len(sums)
            assert sizes == [sum(each[name] for each in known) for name in OF_FILES]

    state = RunState([tmp_path])
    # Pages wait for a part of a second, and show what is read by then.
    state.steps(None)
    application = make_application(state, "token")
    client = testclient.TestClient(application, base_url="http://127.0.0.1")
    client.headers["Authorization"] = "Bearer token"
    run = client.get("/api/run").json()
    shown = [{name: value for name, value in each.items() if name not in INFERRED} for each in steps]
    assert without_files(run["steps"]) == expected_of(shown)
    keys = [(step["step"], step["validate"], step["experiment_name"]) for step in run["steps"]]
    for key, step in zip(keys, run["steps"], strict=True):
        if step["run_id"] is None and keys.count(key) > 1:
            # No address names what has no run's id beside runs that have one.
            continue
        names = {"experiment": step["experiment_name"] or "", "validate": str(int(step["validate"]))}
        names |= {} if step["run_id"] is None else {"run": step["run_id"]}
        place = "none" if step["step"] is None else step["step"]
        page = client.get(f"/api/step/{place}", params=names).json()
        assert page["summary"] == step
        identity = ("step", "validate", "experiment_name", "run_id")
        own = [each for each in groups if [each[name] for name in identity] == [step[name] for name in identity]]
        assert page["groups"] == expected_of(own)
        at = page["columns"].index("trace_id")
        shown = {row[at] for row in page["rows"]}
        assert shown == {trace_id for group in own for trace_id in group["trace_ids"]}
