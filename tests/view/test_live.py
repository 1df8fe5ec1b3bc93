"""A folder that changes, is damaged, comes later, or is asked for by many at once."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import pytest

from otel_rollout import semconv
from otel_rollout.folder.folder_writer import FolderWriter
from otel_rollout.look.view import RunState
from tests.trace_folder.recordings import (
    make_span,
    make_trajectory,
    write_folder,
)
from tests.view.conftest import write_run
from tests.view.viewer import TOKEN, Viewer, wait_for


def versions(viewer: Viewer, known: str, seen: list[dict], stop: threading.Event) -> None:
    """Collect what `api/changes` tells."""
    with viewer.client.stream("GET", f"/api/changes?version={known}") as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                seen.append(json.loads(line.removeprefix("data: ")))
            if stop.is_set():
                return


def with_changes(before, answer):
    """Return an answer whose lists are sent as changes of an earlier one's, as the pages do."""
    lists = {}
    for name, change in answer["changes"].items():
        added = iter(change["added"])
        lists[name] = [
            item
            for part in change["order"]
            for item in (itertools.islice(added, part) if isinstance(part, int) else before[name][slice(*part)])
        ]
    return {**{name: value for name, value in answer.items() if name != "changes"}, **lists}


class TestChanges:
    """`api/changes`."""

    def test_a_page_is_told_of_changes(self, tmp_path):
        """While a process writes all the time, a page hears of it, each time with another version."""
        writer = write_run(tmp_path, range(1))
        with Viewer(tmp_path) as viewer, ThreadPoolExecutor(1) as threads:
            first = viewer.get("run")["version"]
            seen: list[dict] = []
            stop = threading.Event()
            listening = threads.submit(versions, viewer, first, seen, stop)
            rollout = 10
            while len(seen) < 3:
                assert not listening.done()
                writer.write(make_trajectory(1, 0, rollout))
                rollout += 1
                time.sleep(0.02)
            stop.set()
            wait_for(lambda: writer.write(make_trajectory(1, 1, len(seen) + 5000)) or listening.done())
        assert len({told["version"] for told in seen} | {first}) == len(seen) + 1
        writer.close()

    @pytest.mark.parametrize("place", ["step/1?", "step/1/timeline?"])
    def test_of_another_step_a_page_gets_only_the_version(self, tmp_path, place):
        """A page that has an answer is sent no byte of it again until the step changes, be it by a late reward."""
        writer = write_run(tmp_path, range(1, 3))
        with Viewer(tmp_path) as viewer:
            before = viewer.get(place)
            writer.write(make_trajectory(2, 0, 9))
            wait_for(lambda: viewer.get("run")["version"] != before["version"])
            again = viewer.get(f"{place}&known={before['mark']}")
            assert again == {"version": viewer.get("run")["version"], "mark": before["mark"]}
            assert viewer.get(place) == before
            root, attributes = make_trajectory(1, 0, 0)[-1], {semconv.LATE: True, semconv.REWARD: 0.25}
            trace_id = root.context.trace_id
            writer.write([make_span("annotate", 99, trace_id, attributes=attributes)])
            changed = wait_for(lambda: (now := viewer.get(f"{place}&known={before['mark']}")).get("changes") and now)
            assert with_changes(before, changed) == viewer.get(place)
        writer.close()

    def test_of_a_growing_step_a_page_gets_the_new_rollouts(self, tmp_path):
        """New rollouts come with their places among the earlier ones, which don't come again."""
        writer = write_run(tmp_path, range(1, 3))
        with Viewer(tmp_path) as viewer:
            before = viewer.get("step/1")
            writer.write(make_trajectory(1, 0, 9))
            place = f"step/1?known={before['mark']}"
            changed = wait_for(lambda: (now := viewer.get(place)).get("changes") and now)
            assert [len(changed["changes"][name]["added"]) for name in ("groups", "rows")] == [1, 1]
            assert with_changes(before, changed) == viewer.get("step/1") != before
            # A mark that isn't known any more.
            assert viewer.get("step/1?known=none") == viewer.get("step/1")
        writer.close()

    def test_a_page_with_another_version_is_told_at_once(self, viewer):
        """A page that missed a change hears of it when it connects again."""
        with viewer.client.stream("GET", "/api/changes?version=before") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            told = next(line for line in answer.iter_lines() if line.startswith("data: "))
        assert json.loads(told.removeprefix("data: ")) == {"version": viewer.get("run")["version"], "progress": None}

    def test_a_page_is_told_that_the_last_writer_has_ended(self, tmp_path):
        """A crash changes no file, but an open page hears of it and asks for the findings again."""
        writer = FolderWriter(tmp_path)
        writer.write(make_trajectory(1, 0, 0))
        with Viewer(tmp_path) as viewer:
            before = viewer.get("run")
            assert before["is_live"] is True
            with viewer.client.stream("GET", f"/api/changes?version={before['version']}") as answer:
                writer._files.close()
                writer._journal.forget()
                deadline = time.monotonic() + 40
                for told in answer.iter_lines():
                    # A line comes in any case, to keep the connection.
                    assert time.monotonic() < deadline, "no change was told in time"
                    if told.startswith("data: "):
                        break
            after = viewer.get("run")
        assert json.loads(told.removeprefix("data: "))["version"] == after["version"] != before["version"]
        assert after["is_live"] is False

    def test_a_page_that_goes_away_ends_its_waiting(self, viewer):
        """Connections that are cut off leave no waiting behind."""
        server = viewer._server
        wait_for(lambda: not server.server_state.tasks)
        address = urlsplit(viewer.address)
        connections = []
        for _ in range(20):
            connection = socket.create_connection((address.hostname, address.port))
            lines = f"GET /api/changes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
            connection.sendall(lines.encode())
            connections.append(connection)
        wait_for(lambda: len(server.server_state.tasks) == 20)
        for connection in connections:
            connection.close()
        wait_for(lambda: not server.server_state.tasks)


class TestFolders:
    """Folders in any state."""

    def test_a_folder_that_comes_later_is_waited_for(self, tmp_path):
        """Before there are traces the run says what it waits for; once there are, it has them."""
        with Viewer(tmp_path / "traces") as viewer:
            run = viewer.get("run")
            assert run["steps"] == []
            assert f"there is no trace folder {tmp_path / 'traces'}" in run["waiting"]
            assert viewer.client.get("/api/step/1").status_code == 404
            write_run(tmp_path / "traces").close()
            run = wait_for(lambda: (found := viewer.get("run"))["steps"] and found)
            assert [step["step"] for step in run["steps"]] == [1, 2]
            assert run["waiting"] is None

    def test_a_run_that_is_still_being_read_says_so(self, tmp_path, monkeypatch):
        """A crash leaves a journal that takes seconds to read: pages are told to ask again."""
        write_run(tmp_path).close()
        may_end = threading.Event()
        with Viewer(tmp_path) as viewer:
            read = viewer.state.run.steps
            monkeypatch.setattr(viewer.state.run, "steps", lambda: may_end.wait(120) and read())
            before = viewer.get("run")
            assert (before["steps"], before["waiting"], before["progress"]) == ([], None, {"done": 0, "total": 0})
            may_end.set()
            after = wait_for(lambda: (found := viewer.get("run"))["progress"] is None and found)
            assert len(after["steps"]) == 2
            assert after["version"] == before["version"]

    def test_a_reading_that_began_before_a_change_is_followed_by_another(self, tmp_path, monkeypatch):
        """An answer with a version has what was written before it, though a reading was under way."""
        write_run(tmp_path, range(1, 2)).close()
        state = RunState([tmp_path])
        read, may_end, has_read = state.run.steps, threading.Event(), threading.Event()

        def read_slowly() -> list:
            steps = read()
            has_read.set()
            may_end.wait(120)
            return steps

        monkeypatch.setattr(state.run, "steps", read_slowly)
        before = state.version()
        assert state.steps_so_far(0.0) == ([], False)
        assert has_read.wait(120)
        write_run(tmp_path, range(2, 3)).close()
        wait_for(lambda: state.version() != before)
        assert state.steps_so_far(0.0) == ([], False)
        may_end.set()
        steps, is_read = state.steps_so_far(20.0)
        assert ([step.step for step in steps], is_read) == ([1, 2], True)

    def test_an_empty_folder_is_waited_for(self, tmp_path):
        """A folder without traces is one that training will fill."""
        with Viewer(tmp_path) as viewer:
            assert "holds no traces" in viewer.get("run")["waiting"]

    def test_what_is_written_is_seen(self, tmp_path):
        """A step that grows has its new trajectories within a second or two, and the run is live meanwhile."""
        writer = write_run(tmp_path, range(1, 2))
        with Viewer(tmp_path) as viewer:
            assert viewer.get("run")["is_live"] is True
            before = viewer.get("step/1")
            writer.write(make_trajectory(1, 0, 7, reward=0.25))
            after = wait_for(lambda: (found := viewer.get("step/1"))["version"] != before["version"] and found)
            assert after["summary"]["trajectories"] == before["summary"]["trajectories"] + 1
            assert after["groups"][0]["rewards"] == [0.0, 1.0, 0.25]
        writer.close()

    def test_what_runs_is_no_fault_from_its_first_moment(self, tmp_path):
        """A viewer that waited for a run takes its open trajectories for lost only once their process has gone."""

        def rootless(viewer: Viewer) -> bool:
            return any(each["check"] == "rootless" for each in viewer.get("findings?step=1")["findings"])

        with Viewer(tmp_path) as viewer:
            assert viewer.get("run")["is_live"] is False
            writer = FolderWriter(tmp_path)
            writer.write(make_trajectory(1, 0, 0)[:2])
            wait_for(lambda: viewer.get("run")["steps"])
            assert not rootless(viewer)
            assert viewer.get("run")["is_live"] is True
            writer.close()
            wait_for(lambda: rootless(viewer))

    def test_a_running_trajectory_is_shown_without_its_root(self, tmp_path):
        """The spans of a trajectory that runs are its conversation so far."""
        spans = make_trajectory(1, 0, 0)
        writer = FolderWriter(tmp_path)
        writer.write(spans[:2])
        with Viewer(tmp_path) as viewer:
            answer = viewer.get(f"trajectory/{spans[0].context.trace_id:032x}")
            assert answer["summary"]["has_root"] is False
            assert [span["name"] for span in answer["spans"]] == ["generate", "look_up"]
        writer.close()

    def test_what_a_crash_left_open_is_found(self, tmp_path):
        """A trajectory without a root is a finding once its process has ended, though no file changes any more."""
        writer = FolderWriter(tmp_path)
        writer.write(make_trajectory(1, 0, 0))
        writer.write(make_trajectory(1, 0, 1)[:2])
        with Viewer(tmp_path) as viewer:
            assert viewer.get("findings")["findings"] == []
            writer._files.close()
            writer._journal.forget()
            found = wait_for(lambda: viewer.get("findings")["findings"])
            assert [each["check"] for each in found] == ["rootless"]

    def test_a_torn_file_is_reported_and_the_rest_shown(self, tmp_path):
        """What can't be read is a sentence on the page; what can be is shown."""
        write_run(tmp_path).close()
        [data] = (tmp_path / "steps=000000-000099").glob("*.otlp.zst")
        [index] = (tmp_path / "steps=000000-000099").glob("*.index.jsonl.zst")
        index.unlink()
        data.write_bytes(data.read_bytes()[:-20])
        with Viewer(tmp_path) as viewer:
            run = viewer.run()
            assert [step["trajectories"] for step in run["steps"]] == [4, 3]
            assert run["problems"] == [f"1 torn frame skipped in {data}"]
            assert len(viewer.get("step/2")["rows"]) == 3

    def test_a_folder_that_can_t_be_read_is_an_error_in_words(self, tmp_path, monkeypatch):
        """Without permission each page says so, and the connection for changes stays."""
        write_run(tmp_path).close()

        def refuse(*unused: object) -> None:
            raise PermissionError(13, "Permission denied", str(tmp_path))

        with Viewer(tmp_path) as viewer:
            monkeypatch.setattr(viewer.state.run, "version", refuse)
            monkeypatch.setattr(viewer.state.run, "steps", refuse)
            answer = viewer.client.get("/api/run")
            assert (answer.status_code, "Permission denied" in answer.json()["error"]) == (500, True)
            with viewer.client.stream("GET", "/api/changes") as changes:
                assert next(line for line in changes.iter_lines() if line.startswith("data: "))

    def test_a_folder_that_is_removed_is_an_error_in_words(self, tmp_path):
        """If the files are gone, the run waits again, and its trajectories are not found."""
        import shutil

        write_run(tmp_path / "traces").close()
        with Viewer(tmp_path / "traces") as viewer:
            assert viewer.run()["steps"]
            shutil.rmtree(tmp_path / "traces")
            wait_for(lambda: viewer.client.get("/api/step/1").status_code == 404)
            wait_for(lambda: "there is no trace folder" in (viewer.get("run")["waiting"] or ""))


class TestMany:
    """Many requests, and large ones."""

    def test_200_requests_at_once_are_answered(self, viewer):
        """200 clients that ask at the same time all get their answers."""
        paths = ["run", "step/1", "step/1/group?sample=0", "step/1/timeline"] * 50
        with ThreadPoolExecutor(200) as threads:
            answers = list(threads.map(lambda path: (path, viewer.get(path)), paths))
        expected = {path: viewer.get(path) for path in set(paths)}
        assert all(answer == expected[path] for path, answer in answers)

    def test_clients_that_go_away_don_t_stop_others(self, viewer):
        """Requests whose clients leave before the answer don't disturb the next."""
        address = urlsplit(viewer.address)
        for _ in range(100):
            with socket.create_connection((address.hostname, address.port)) as connection:
                lines = f"GET /api/step/1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
                connection.sendall(lines.encode())
        assert viewer.get("step/1")["summary"]["trajectories"] == 4

    @pytest.mark.slow
    def test_a_trajectory_of_many_turns_has_a_bounded_answer(self, tmp_path):
        """12,000 turns, and a text of 10 MB, make an answer that a browser can hold, which says what it leaves out."""
        from otel_rollout import semconv
        from tests.trace_folder.recordings import make_span

        spans = make_trajectory()
        trace_id = spans[0].context.trace_id
        long = {**spans[0].attributes, semconv.OUTPUT_VALUE: json.dumps("x" * 10_000_000)}
        spans[0] = make_span("generate", 2, trace_id, attributes=long)
        payload = {semconv.SPAN_KIND: "LLM", semconv.OUTPUT_VALUE: json.dumps("y" * 100)}
        turns = [
            make_span("generate", 100 + number, trace_id, attributes=payload, seconds=(1 + number, 2 + number))
            for number in range(12_000)
        ]
        write_folder(tmp_path, [*spans[:-1], *turns, spans[-1]])
        with Viewer(tmp_path) as viewer:
            answer = viewer.client.get(f"/api/trajectory/{trace_id:032x}")
            assert answer.status_code == 200
            assert len(answer.content) < 20_000_000
            said = answer.json()
            assert said["spans_left_out"] > 0
            assert said["left_out"] > 0
            shown = len(said["conversation"]) + said["left_out"]
            assert shown == 12_003
            assert len(said["spans"]) + said["spans_left_out"] == 12_003


class TestSearch:
    """`api/search`."""

    def lines(self, viewer: Viewer, query: str) -> list[dict]:
        """The lines of an answer."""
        answer = viewer.client.get(f"/api/search?{query}")
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        return [json.loads(line) for line in answer.text.splitlines()]

    def test_hits_come_as_lines_and_the_last_line_has_the_counts(self, viewer):
        """A search answers a line for each trajectory that has the text, then what was searched."""
        *hits, last = self.lines(viewer, "q=HELLO&step=1")
        assert [(hit["hit"]["step"], hit["hit"]["sample_index"]) for hit in hits] == [(1, 0), (1, 0), (1, 1), (1, 1)]
        hit = hits[0]["hit"]
        assert hit["excerpt"][hit["start"] : hit["end"]].lower() == "hello"
        assert (last["done"], last["hits"], last["is_cut"]) == (True, 4, False)

    def test_a_text_that_nothing_has_is_no_error(self, viewer):
        """Without a hit there is the last line alone."""
        assert [line["hits"] for line in self.lines(viewer, "q=nowhere")] == [0]

    @pytest.mark.parametrize("query", ["q=", "q=a&in=other", "q=a&step=x", ""])
    def test_a_search_for_nothing_is_an_error_in_words(self, viewer, query):
        """A query that makes no sense is refused with a sentence."""
        answer = viewer.client.get(f"/api/search?{query}")
        assert answer.status_code == 400
        assert len(answer.json()["error"].split()) > 3

    def test_a_page_that_goes_away_ends_its_search(self, viewer, monkeypatch):
        """A search whose page has gone is closed."""
        from otel_rollout.catalog import Search

        closed = threading.Event()
        close = Search.close
        monkeypatch.setattr(Search, "close", lambda self: (close(self), closed.set()))
        with httpx.stream(
            "GET",
            f"{viewer.address}/api/search?q=hello",
            headers={"Authorization": f"Bearer {TOKEN}"},
            trust_env=False,
        ) as answer:
            next(answer.iter_bytes())
        assert closed.wait(120)
