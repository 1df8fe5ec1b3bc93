"""The JSON that the pages ask for, from a run; each function blocks, and runs in a thread of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import fields
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.catalog import LiveRun
from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.errors import NoTracesError
from otel_rollout.facts.conversations import conversations_of
from otel_rollout.facts.shapes import Shape
from otel_rollout.facts.table import FACTS, INFERRED, shown_of
from otel_rollout.look.findings import diagnose_run, running_steps
from otel_rollout.look.findings.reward_level import scale_of
from otel_rollout.look.view.answers import AskedWrongError, asked_step, is_validation, json_bytes
from otel_rollout.look.view.comparing import biography, compared
from otel_rollout.look.view.run_state import Progress, RunState
from otel_rollout.look.view.shown_spans import (
    Cutter,
    Turns,
    span_id_of,
    span_record,
    span_records,
    utterances,
)

Parameters = Mapping[str, str]

FIRST_PATIENCE: Final = 0.4
"""The seconds that the page of the run waits for steps before it shows how far their reading is."""
PATIENCE: Final = 120.0
MAX_COLUMNS: Final = 64
"""The most rollouts of a group whose conversations are sent in one answer."""

_ROW_FACTS: Final = tuple(each.name for each in FACTS if each.shown == "row")
COLUMNS: Final = (*_ROW_FACTS, "seconds", "tool_calls", "tool_errors", "service", "name")
_FACTS: Final = (*_ROW_FACTS, "seconds", "tools", "service_name", "name")
_SAMPLE_INDEX: Final = _ROW_FACTS.index("sample_index")


class Endpoints:
    """Answers of one run.

    Args:
        state: The run.
    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._run = state.run

    def run(self, path: Parameters, query: Parameters) -> dict[str, Any]:
        """Answer `api/run`."""
        version = self._state.version()
        try:
            (steps, is_read), waiting = self._state.steps_so_far(FIRST_PATIENCE), None
        except NoTracesError as error:
            steps, is_read, waiting = [], True, self._state.waits_for() or str(error)
        folders = list(map(str, self._state.folders))
        progress = None if is_read else self._state.progress or Progress(0, 0)
        return {
            "version": version,
            "title": ", ".join(folders),
            "folders": folders,
            "steps": list(map(_shown, steps)),
            "run_folders": self._state.run_folders(),
            "is_live": self._state.is_live(),
            "waiting": waiting if waiting or steps or progress else self._state.waits_for(),
            "problems": self._state.problems(),
            "attempts": self._state.attempts(),
            "progress": progress and progress._asdict(),
        }

    def mark_of_step(self, path: Parameters, query: Parameters) -> str:
        """Return a text that differs once a step has: each line about a trajectory of it adds to its bytes."""
        return blake2b(json_bytes(_shown(self._asked(path, query))), digest_size=8).hexdigest()

    def step(self, path: Parameters, query: Parameters) -> dict[str, Any]:
        """Answer `api/step/{step}`."""
        version = self._state.version()
        step = self._asked(path, query)
        return {
            "version": version,
            "summary": _shown(step),
            "groups": self._run.groups(step),
            "columns": COLUMNS,
            "rows": list(map(_row, self._run.facts(step, _FACTS))),
        }

    def group(self, path: Parameters, query: Parameters) -> dict[str, Any]:
        """Answer `api/step/{step}/group?sample=…`."""
        version = self._state.version()
        step = self._asked(path, query)
        groups = self._run.groups(step)
        names = [name_in_address(each.sample_index) for each in groups]
        sample_name = query.get("sample", "")
        if sample_name not in names:
            raise AskedWrongError(404, f"there is no prompt {sample_name!r} in step {path['step']}; it may come later")
        at = names.index(sample_name)
        summary = groups[at]
        own = self._run.rollouts(summary)
        cutter = Cutter()
        rollouts = []
        for each in own[:MAX_COLUMNS]:
            spans = self._spans(each.trace_id)
            conversations = conversations_of(spans)
            told, left_out = utterances(spans, conversations, cutter, has_token_ids=False)
            rollouts.append(
                {
                    "summary": shown_of(each),
                    "conversation": told,
                    "conversations": conversations.all,
                    "left_out": left_out,
                }
            )
        sample = summary.sample_index
        others = [] if sample is None else self._run.same_prompt(sample, step)
        return {
            "version": version,
            "summary": summary,
            "rollouts": rollouts,
            "left_out": len(own) - len(rollouts),
            "other_steps": [group for group in others if group.step != step.step],
            "previous": groups[at - 1].sample_index if at else None,
            "next": groups[at + 1].sample_index if at + 1 < len(groups) else None,
        }

    def timeline(self, path: Parameters, query: Parameters) -> dict[str, Any]:
        """Answer `api/step/{step}/timeline`."""
        version = self._state.version()
        step = self._asked(path, query)
        return {"version": version, **timeline(self._run.facts(step, LANE_FACTS), self._run.shapes(step))}

    def trajectory(self, path: Parameters, query: Parameters) -> dict[str, Any]:
        """Answer `api/trajectory/{trace_id}`."""
        version = self._state.version()
        spans = self._spans(path["trace_id"])
        summary = self._run.summary(path["trace_id"])
        group = self._run.group_of(summary)
        attempt, is_overtaken = self._run.attempt_of(summary.trace_id)
        ids = group.trace_ids if group is not None else (summary.trace_id,)
        at = ids.index(summary.trace_id)
        conversations = conversations_of(spans)
        told, left_out = utterances(spans, conversations, Cutter())
        records, spans_left_out = span_records(spans, conversations, Cutter())
        return {
            "version": version,
            "summary": shown_of(summary),
            "conversation": told,
            "conversations": conversations.all,
            "left_out": left_out,
            "spans": records,
            "spans_left_out": spans_left_out,
            "group": {
                "step": summary.step,
                "validate": summary.validate,
                "experiment": summary.experiment_name,
                "run": group and group.run_id,
                "sample_index": summary.sample_index,
            },
            "attempt": attempt,
            "is_overtaken": is_overtaken,
            "previous": ids[at - 1] if at else None,
            "next": ids[at + 1] if at + 1 < len(ids) else None,
        }

    def span(self, path: Parameters, query: Parameters) -> dict[str, Any]:
        """Answer `api/trajectory/{trace_id}/span/{span_id}`."""
        spans = self._spans(path["trace_id"])
        found = [span for span in spans if span_id_of(span) == path["span_id"]]
        if not found:
            raise AskedWrongError(404, f"the trajectory {path['trace_id']} has no span {path['span_id']!r}")
        return span_record(found[-1], Turns(conversations_of(spans)), Cutter(each=None))

    def findings(self, path: Parameters, query: Parameters) -> dict[str, Any]:
        """Answer `api/findings`: the findings of a step, or of the steps of an experiment."""
        known = self._state.steps(PATIENCE)
        steps = [self._asked(query, query)] if "step" in query else _of_experiment(known, query)
        found = diagnose_run(
            self._run,
            steps,
            folder=str(self._state.folders[0]) if len(self._state.folders) == 1 else None,
            running=running_steps(self._run, known) if self._state.is_live() else (),
        )
        return {"findings": found.findings, "looked_at": found.looked_at_note}

    def prompt(self, path: Parameters, query: Parameters) -> dict[str, Any]:
        """Answer `api/prompt?sample=…`: a prompt over the steps of its run."""
        version, known = self._state.version(), self._state.steps(PATIENCE)
        validate = is_validation(query)
        own = [step for step in _of_experiment(known, query) if step.validate == validate]
        # Without a name, the newest run.
        newest = max(own, key=lambda step: step.end_time, default=None)
        sample = query.get("sample", "")
        groups = [] if newest is None else self._run.same_prompt(sample, newest)
        if newest is None or not groups:
            raise AskedWrongError(404, f"there is no prompt {sample!r} in this run; it may come later")
        steps = [step for step in own if step.identity[2:] == newest.identity[2:]]
        return {"version": version, **biography(groups, scale_of(steps))}

    def compare(self, path: Parameters, query: Parameters) -> dict[str, Any]:
        """Answer `api/compare`."""
        version, steps = self._state.version(), self._state.steps(PATIENCE)
        return {"version": version, **compared(self._state, steps, query)}

    def live(self, path: Parameters, query: Parameters) -> dict[str, Any]:
        """Answer `api/live`."""
        live = self._state.live()
        return {
            "trajectories": [{**_fields(each), "is_late": each.is_late} for each in live.trajectories],
            "open": live.open,
            "waits": live.waits,
            "why": live.why_none,
        }

    def open(self, path: Parameters, query: Parameters) -> dict[str, Any]:
        """Answer `api/open`."""
        return open_counts(self._state.live())

    def _asked(self, path: Parameters, query: Parameters) -> StepSummary:
        return asked_step(path["step"], query, self._state.steps(PATIENCE))

    def _spans(self, trace_id: str) -> list[ReadableSpan]:
        """Return a trajectory's spans; a copy reads them, as the run's own would keep them."""
        try:
            return copy(self._run.trajectory(trace_id)).spans
        except LookupError:
            for each in self._state.live().trajectories:
                if each.trace_id == trace_id:
                    so_far = (
                        "runs, and nothing of it is written yet"
                        if each.is_alive
                        else "was running when its process ended, and nothing of it is written"
                    )
                    raise AskedWrongError(404, f"this trajectory {so_far}") from None
            raise AskedWrongError(404, f"there is no trajectory {trace_id!r} in this run") from None


def name_in_address(value: int | str | None) -> str:
    """Return a step or a prompt as an address has it."""
    return "none" if value is None else str(value)


def _shown(step: StepSummary) -> dict[str, Any]:
    """Return a step without the facts that are inferred for whom they are shown to."""
    return {each.name: getattr(step, each.name) for each in fields(step) if each.name not in INFERRED}


def _row(given: Sequence[Any]) -> Sequence[Any]:
    *facts, tools, service, name = given
    calls = errors = 0
    for counts in tools.values():
        calls += counts.calls
        errors += counts.errors
    # A trajectory without a prompt is named by them; for thousands of rollouts they would only be sent.
    origin = (service, name) if facts[_SAMPLE_INDEX] is None else (None, None)
    return *facts, calls, errors, *origin


def _fields(value: Any) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in fields(value)}


def _of_experiment(steps: Sequence[StepSummary], query: Parameters) -> list[StepSummary]:
    """Return the steps of the experiment and run that a request names, with their validation; else all."""
    experiment, run_id = query.get("experiment"), query.get("run")
    return [
        step
        for step in steps
        if experiment in (None, str(step.experiment_name or "")) and run_id in (None, step.run_id)
    ]


def open_counts(live: LiveRun) -> dict[str, Any]:
    """Return the number of open trajectories, and of those left by a process that ended or is silent.

    Args:
        live: The open trajectories; of very many in one process, those that run longest are counted by step.
    """
    steps: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each in live.trajectories:
        key = each.step, each.validate, each.experiment_name
        names = dict(zip(("step", "validate", "experiment_name"), key, strict=True))
        counts = steps.setdefault(key, {**names, "open": 0, "left": 0})
        counts["open"] += 1
        counts["left"] += not each.is_alive
    return {"open": live.open, "left": sum(each["left"] for each in steps.values()), "steps": list(steps.values())}


KINDS: Final = {"LLM": 0, "TOOL": 1, "EVALUATOR": 2}
OTHER: Final = 3


LANE_FACTS: Final = ("trace_id", "sample_index", "rollout_n", "status", "reward", "has_root", "start_time", "end_time")


def timeline(trajectories: Sequence[Sequence[Any]], shapes: Mapping[str, Sequence[Shape]]) -> dict[str, Any]:
    """Return the lanes of a step, sorted by end; times are microseconds from the step's start.

    Args:
        trajectories: The `LANE_FACTS` of the step's trajectories.
        shapes: The places of their spans by trace id, where these are known.
    """
    first = min((start for *_, start, _ in trajectories), default=0)
    last = max((end for *_, end in trajectories), default=0)
    names: dict[str, int] = {}
    lanes = []
    for *facts, start, end in sorted(trajectories, key=itemgetter(-1)):
        places, began, lasted = shapes.get(facts[0], ()), (start - first) // 1000, (end - start) // 1000
        lanes.append(
            {
                **dict(zip(LANE_FACTS, facts, strict=False)),
                "start": began,
                "end": (end - first) // 1000,
                "segments": _segments(places, began, lasted, names),
            }
        )
    return {"start_time": str(first), "end_time": str(last), "names": list(names), "lanes": lanes}


def _segments(places: Sequence[Shape], start: int, lasted: int, names: dict[str, int]) -> list[int]:
    parents = {parent for _, _, _, _, _, parent in places}
    segments: list[int] = []
    for at, (name, kind, offset, duration, status, parent) in enumerate(places):
        # Leave out spans after the root, which aren't the trajectory's time.
        if offset > lasted:
            continue
        number = KINDS.get(kind, OTHER)
        # A span with children shows by them; the time between them is waiting.
        if number == OTHER:
            if at in parents or parent < 0:
                continue
        elif parent >= 0 and places[parent][1] == kind:
            continue
        segments += (number, start + offset, duration, names.setdefault(name, len(names)), status)
    return segments
