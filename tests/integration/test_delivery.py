"""Whole and once: crowds, large payloads and an outage, in front of a real Phoenix."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from tests.faults.faulty_receiver import FaultyReceiver
from tests.payload_values import read_payload
from tests.servers.phoenix_server import Phoenix
from tests.servers.span_trees import trees

pytestmark = pytest.mark.integration

PROTOCOLS = ["http/protobuf", "grpc"]
GRPC_IS_SLOW = [PROTOCOLS[0], pytest.param(PROTOCOLS[1], marks=pytest.mark.slow)]

CROWD_TREE = (
    "trajectory", "AGENT", "UNSET",
    [("agent", "CHAIN", "UNSET", [
        ("left", "CHAIN", "UNSET", [("inner", "CHAIN", "UNSET", [])]),
        ("right", "CHAIN", "UNSET", [("thread", "CHAIN", "UNSET", [])]),
    ])],
)  # fmt: skip
WORKER_TREE = ("trajectory", "AGENT", "UNSET", [("act", "CHAIN", "UNSET", [])])


class TestCrowd:
    """A hundred concurrent trajectories arrive complete and unmixed."""

    def test_a_hundred_concurrent_trajectories_arrive_complete_and_unmixed(self, phoenix, programs, otlp):
        """100 interleaved trajectories of five ops are 100 whole trees, and every span says whose it is."""
        programs.run("crowd", "crowd", **otlp(phoenix, "http/protobuf"))
        spans = phoenix.api.wait_for_spans("crowd", 600)
        assert len(spans) == 600
        roots = trees(spans)
        owners = set()
        for root in roots.values():
            sample_index, rollout_n = root.attributes["rollout.sample_index"], root.attributes["rollout.rollout_n"]
            owner = f"{sample_index}/{rollout_n}"
            owners.add(owner)
            assert sorted_shape(root.shape()) == CROWD_TREE
            for node in root.walk():
                assert node.attributes["rollout.sample_index"] == sample_index
                assert node.attributes["rollout.rollout_n"] == rollout_n
                assert read_payload(node, "output.value") == owner
                expected_input = owner if node is root else {"owner": owner}
                assert read_payload(node, "input.value") == expected_input
        assert owners == {f"{sample}/{n}" for sample in range(25) for n in range(4)}
        assert len(phoenix.api.sessions("crowd")) == 25


class TestLargePayloads:
    """Batches stay under the receiver's limit, and what is cut is said."""

    @pytest.mark.parametrize("protocol", GRPC_IS_SLOW)
    def test_ten_megabytes_of_spans_arrive_whole(self, phoenix, programs, otlp, protocol):
        """24 ops of 400 KB that end within a moment arrive whole; of an argument of 8 MB, every byte cut is counted."""
        project = f"large-{protocol[:4]}"
        programs.run("large", project, **otlp(phoenix, protocol))
        spans = phoenix.api.wait_for_spans(project, 26)
        (root,) = trees(spans).values()
        inputs = [read_payload(node, "input.value") for node in root.children if node.name == "echo"]
        assert [entry["index"] for entry in inputs] == list(range(24))
        assert [len(entry["text"]) for entry in inputs] == [400_000] * 24
        assert all(set(entry["text"].split()) == {f"{entry['index']:07d}"} for entry in inputs)

        (huge,) = [node for node in root.children if node.name == "huge"]
        text = huge.attributes["input.value"]
        assert len(text) <= 2**20
        assert json.loads(text)["text"].startswith("0000099 0000099 ")
        assert read_payload(huge, "output.value") == 8_000_000

        cut = 8_000_000 - len(read_payload(huge, "input.value")["text"])
        assert root.attributes["rollout.truncated_bytes"] == pytest.approx(cut, rel=0.001)
        report = programs.report(project)
        assert report["flushed"] is True
        assert report["stats"]["truncated_bytes"] == root.attributes["rollout.truncated_bytes"]
        (counts,) = report["stats"]["exporters"].values()
        assert (counts["delivered"], counts["lost"], counts["payloads_dropped"]) == (26, {}, 0)


class TestProcesses:
    """Workers of one run, forked and fresh, seeded alike."""

    @pytest.mark.parametrize("protocol", GRPC_IS_SLOW)
    def test_forked_and_spawned_workers_deliver_their_own_trajectories_once(self, phoenix, programs, otlp, protocol):
        """Eleven rollouts of one prompt from five processes are eleven trees in one session, none twice."""
        project = f"workers-{protocol[:4]}"
        programs.run("workers", project, **{**otlp(phoenix, protocol), "PYTHONWARNINGS": "default"})
        spans = phoenix.api.wait_for_spans(project, 22)
        roots = trees(spans)
        assert sorted(root.attributes["rollout.rollout_n"] for root in roots.values()) == list(range(11))
        assert [root.shape() for root in roots.values()] == [WORKER_TREE] * 11
        by_process: dict[str, list[int]] = {}
        for root in sorted(roots.values(), key=lambda root: root.attributes["rollout.rollout_n"]):
            by_process.setdefault(root.attributes["output.value"], []).append(root.attributes["rollout.rollout_n"])
        assert sorted(by_process.values()) == [[0, 1, 10], [2, 3], [4, 5], [6, 7], [8, 9]]
        (session,) = phoenix.api.sessions(project)
        assert {trace["trace_id"] for trace in session["traces"]} == set(roots)
        (counts,) = programs.report(project)["stats"]["exporters"].values()
        assert (counts["delivered"], counts["lost"]) == (6, {})


@pytest.fixture(scope="module", params=GRPC_IS_SLOW)
def awkward(request, phoenix, programs, otlp):
    """The roots of the awkward program's traces over each protocol, by sample index, and its report."""
    project = f"awkward-{request.param[:4]}"
    programs.run("awkward", project, **otlp(phoenix, request.param))
    phoenix.api.wait_for_spans(project, 26)
    phoenix.api.wait_until_quiet(project, seconds=1.0)
    roots = trees(phoenix.api.spans(project)).values()
    return list(roots), {"project": project, **programs.report(project)}


class TestAwkwardValues:
    """Whatever a value is, its span arrives with valid JSON."""

    def test_every_payload_arrives_as_valid_json(self, awkward):
        """Giant ints, surrogates, NUL, bytes, cycles and the like cost no span, no tag and no payload."""
        roots = {root.attributes["rollout.sample_index"]: root for root in awkward[0]}
        for name in AWKWARD_NAMES:
            root = roots[name]
            (echo,) = root.children
            assert (echo.name, echo.attributes["rollout.sample_index"]) == ("echo", name)
            value = read_payload(echo, "output.value")
            argument = read_payload(echo, "input.value")["value"]
            if name != "none":  # nothing to annotate with
                assert read_payload(root, "input.value") == value
                assert read_payload(root, "output.value") == value
            if name == "cycle":
                # Where it closes depends on how deep it stands.
                assert "<cycle to builtins.list>" in echo.attributes["input.value"]
            elif name != "deep":
                assert argument == value
            if name in AWKWARD_VALUES:
                assert value == AWKWARD_VALUES[name]

    def test_an_annotation_that_can_not_be_recorded_costs_no_trajectory(self, awkward):
        """Each of fifteen trajectories with an impossible annotation arrives, with its tags."""
        roots, report = awkward
        annotated = [root for root in roots if root.attributes["rollout.sample_index"] == "annotated"]
        assert sorted(root.attributes["rollout.rollout_n"] for root in annotated) == list(range(15))
        assert {root.attributes["rollout.step"] for root in annotated} == {1}
        (counts,) = report["stats"]["exporters"].values()
        assert (counts["recorded"], counts["delivered"], counts["lost"]) == (41, 41, {})
        assert report["stats"]["internal_errors"] == {}

    def test_an_annotation_never_hides_a_trajectory_from_its_group_or_its_step(self, awkward, phoenix):
        """Annotations named like a part of our own keys leave the session and the filter by step whole."""
        roots, report = awkward
        ids = {
            root.span["context"]["trace_id"] for root in roots if root.attributes["rollout.sample_index"] == "annotated"
        }
        project = report["project"]
        sessions = [{trace["trace_id"] for trace in session["traces"]} for session in phoenix.api.sessions(project)]
        assert ids in sessions
        found = phoenix.api.spans(project, attribute="rollout.step:1", name="trajectory")
        assert ids <= {span["context"]["trace_id"] for span in found}
        assert len(phoenix.api.search(project, "metadata['step'] == 1")) == len(roots)


AWKWARD_NAMES = [
    "nan", "infinity", "big", "surrogate", "nul", "bytes", "set", "keys", "cycle", "deep", "unreadable", "none",
    "empty",
]  # fmt: skip
AWKWARD_VALUES = {"nan": None, "infinity": [None, None], "nul": "a\0b", "set": [1], "empty": {}}


@dataclass
class Outage:
    """What was seen of a program whose receiver went away and came back: what its two flushes said, and the end."""

    during: dict[str, Any]
    after: dict[str, Any]
    spans: list[dict[str, Any]]
    report: dict[str, Any]
    times_taken: Counter[str] | None


@pytest.fixture(scope="module")
def outages(environment, programs, otlp, uncaptured):
    """One outage of Phoenix, seen by a program that sends over HTTP and one that sends over gRPC."""
    with Phoenix(environment("phoenix"), uncaptured=uncaptured) as phoenix, FaultyReceiver(phoenix.address) as proxy:
        receivers = {"http/protobuf": proxy, "grpc": phoenix}
        projects = {protocol: f"outage-{protocol[:4]}" for protocol in PROTOCOLS}
        running = {
            protocol: programs.start("outage", projects[protocol], **otlp(receivers[protocol], protocol))
            for protocol in PROTOCOLS
        }
        try:
            for project in projects.values():
                phoenix.api.wait_for_spans(project, 10)
            phoenix.stop()
            during = cue(running, "during 2")
            phoenix.start()
            after = cue(running, "after 15")
            for program in running.values():
                program.stdin.close()
                assert program.wait(150) == 0
        finally:
            for program in running.values():
                program.kill()
                program.wait()
                program.stdin.close()
                program.stdout.close()
        return {
            protocol: Outage(
                during[protocol],
                after[protocol],
                phoenix.api.wait_for_spans(project, 30),
                programs.report(project),
                proxy.stored if protocol != "grpc" else None,
            )
            for protocol, project in projects.items()
        }


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
class TestOutage:
    """A receiver that goes and comes back costs nothing."""

    def test_nothing_is_lost_and_nothing_arrives_twice(self, outages, protocol):
        """Spans from before, during and after the outage all arrive, and none is sent again once it was taken."""
        outage = outages[protocol]
        outputs = sorted(read_payload(root, "output.value") for root in trees(outage.spans).values())
        assert outputs == sorted(f"{part} {n}" for part in ("before", "during", "after") for n in range(5))
        assert len(outage.spans) == 30
        (counts,) = outage.report["stats"]["exporters"].values()
        assert (counts["delivered"], counts["lost"]) == (30, {})
        if outage.times_taken is not None:
            assert outage.times_taken == {span["context"]["span_id"]: 1 for span in outage.spans}

    def test_a_flush_during_the_outage_is_short_and_truthful(self, outages, protocol):
        """It returns False, within the two seconds that it was given."""
        flush = outages[protocol].during
        assert flush["flushed"] is False
        assert flush["seconds"] < 3.0

    def test_a_flush_after_the_outage_gets_through(self, outages, protocol):
        """It does not sit out the waits between attempts that the outage has made long."""
        assert outages[protocol].after["flushed"] is True
        assert outages[protocol].report["flushed"] is True


def cue(running, line):
    """Give each program a line, and return what each said of the flush after it."""
    for program in running.values():
        program.stdin.write(line + "\n")
        program.stdin.flush()
    return {protocol: json.loads(program.stdout.readline()) for protocol, program in running.items()}


def sorted_shape(shape):
    """Return a tree's shape with siblings in the order of their names: concurrent ones start in any order."""
    name, kind, status, children = shape
    return name, kind, status, sorted(sorted_shape(child) for child in children)
