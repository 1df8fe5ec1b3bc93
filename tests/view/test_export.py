"""Pages that are opened from the disk."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from otel_rollout import semconv
from otel_rollout.errors import ConfigurationError, NoTracesError
from otel_rollout.look.view import STATIC, RunState, data_name, export_run, script_of
from tests.servers.browser import Browser, wait_for_words
from tests.trace_folder.recordings import make_span, make_trajectory, trace_id_of, write_folder

HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'>\u2028 ]]> --> \u202e"

PAGES = [
    ("#/", "Step", "Groups"),
    ("#/step/7?experiment=exp", "Step 7", "Mean reward"),
    ("#/step/7/sample/12?experiment=exp", "Sample 12", "mean reward", "look_up"),
    ("#/step/8/sample/12/rollout/0", "generate", "look_up"),
    ("#/step/8/timeline", "generating"),
    ("#/step/8?validate=1", "Step 8", "validation"),
]
"""Addresses, and words that their pages show."""


def hostile_trajectory() -> list:
    """A trajectory with markup in each text, and keys that mean something to JavaScript."""
    spans = make_trajectory(7, HOSTILE, HOSTILE, payload=json.dumps(HOSTILE), experiment=HOSTILE)
    attributes = {
        **spans[1].attributes,
        semconv.TOOL_NAME: HOSTILE,
        "__proto__": HOSTILE,
        "constructor": "x",
        semconv.INPUT_VALUE: '{"__proto__": {"polluted": 1}}',
    }
    trace_id = trace_id_of(7, HOSTILE, HOSTILE)
    return [spans[0], make_span(HOSTILE, 3, trace_id, attributes=attributes, error=HOSTILE), spans[2]]


@pytest.fixture(scope="module")
def traces(tmp_path_factory) -> Path:
    """Two experiments in step 7, one of them hostile, and a validation."""
    folder = tmp_path_factory.mktemp("traces")
    return write_folder(
        folder,
        *(make_trajectory(7, 12, rollout, reward=rollout / 2) for rollout in range(3)),
        make_trajectory(8, 12, 0, payload=json.dumps("long " * 20_000)),
        make_trajectory(8, 12, 1, validate=True),
        hostile_trajectory(),
    )


@pytest.fixture(scope="module")
def exported(traces, tmp_path_factory) -> Path:
    """Its export."""
    out = tmp_path_factory.mktemp("exported") / "out"
    counts = export_run(RunState([traces]), STATIC, out)
    assert (counts.steps, counts.trajectories) == (4, 6)
    # What a message of it says is what is sent: pages and data.
    assert counts.bytes == sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) > 500_000
    return out


class TestFiles:
    """What is written."""

    def test_nothing_in_the_pages_comes_from_elsewhere(self, exported):
        """No file but the data has an address of another host, and the policy allows none."""
        page = (exported / "index.html").read_text()
        assert not re.findall(r'(?:src|href)="(?:https?:)?//', page)
        assert "default-src 'none'" in page
        assert "unsafe" not in page

    def test_payload_stays_in_its_texts(self, exported):
        """No script of data has a character with which a tag could begin."""
        scripts = list((exported / "data").glob("*.js"))
        assert len(scripts) > 10
        assert not [path for path in scripts if b"<" in path.read_bytes()]

    def test_a_script_defines_its_answer(self):
        """A data script is one assignment, whose text is JSON in a string."""
        script = script_of("a~2f", {"__proto__": '"</script>'}).decode()
        found = re.fullmatch(r'\(window\.otelRolloutData\?\?=\{\}\)\["a~2f"\]=JSON\.parse\((".*")\);\n', script)
        assert json.loads(json.loads(found[1])) == {"__proto__": '"</script>'}

    def test_names_have_only_characters_of_any_file_system(self):
        """Names of scripts are those that the pages ask for."""
        assert data_name("step/7?experiment=Ä b") == "step~2f7~3fexperiment~3d~c3~84~20b"
        assert data_name("x" * 120) == "x" * 120
        assert data_name("x" * 121) == "x" * 80 + "~d77cbbf2c7cf1f67"

    def test_a_cut_span_is_there_whole(self, exported, traces):
        """Of a span that is cut in its trajectory there is a script of its own."""
        assert list((exported / "data").glob("trajectory~2f*~2fspan~2f*.js"))

    def test_an_export_is_private(self, exported):
        """The folder is only for its owner, as traces are."""
        assert exported.stat().st_mode & 0o777 == 0o700

    def test_one_step_may_be_exported(self, traces, tmp_path):
        """With a step, the others are neither listed nor linked."""
        counts = export_run(RunState([traces]), STATIC, tmp_path / "out", steps=8)
        assert (counts.steps, counts.trajectories) == (2, 2)
        assert not list((tmp_path / "out" / "data").glob("step~2f7*"))
        with pytest.raises(NoTracesError, match="no step matches"):
            export_run(RunState([traces]), STATIC, tmp_path / "none", steps=range(3))
        assert not (tmp_path / "none").exists()

    def test_only_an_export_is_replaced(self, traces, tmp_path):
        """A folder with other files stays as it is; an older export is replaced as a whole."""
        out = tmp_path / "out"
        out.mkdir()
        export_run(RunState([traces]), STATIC, out, steps=7)
        export_run(RunState([traces]), STATIC, out, steps=8)
        assert not list((out / "data").glob("step~2f7*"))
        other = tmp_path / "other"
        other.mkdir()
        (other / "thesis.tex").write_text("years of work")
        with pytest.raises(ConfigurationError, match="is no export"):
            export_run(RunState([traces]), STATIC, other)
        assert [path.name for path in other.iterdir()] == ["thesis.tex"]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "out"]

    def test_a_failed_export_leaves_the_old_one(self, traces, tmp_path):
        """If an export fails on its way, what was there is still there, and nothing else."""
        out = tmp_path / "out"
        export_run(RunState([traces]), STATIC, out, steps=8)

        def fail(done: int, total: int) -> None:
            if done:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            export_run(RunState([traces]), STATIC, out, on_progress=fail)
        assert list((out / "data").glob("step~2f8*"))
        assert [path.name for path in tmp_path.iterdir()] == ["out"]


class TestBrowser:
    """The pages in chromium, from file://."""

    def test_each_page_opens_from_the_disk(self, browser: Browser, exported, tmp_path):
        """Pages opened by their address show what the server's pages show, without a request to any host."""
        errors: list[str] = []
        with browser.open("about:blank") as page:
            page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.on("request", lambda request: requests.add(request.url.partition(":")[0]))
            requests: set[str] = set()
            for address, *words in PAGES:
                page.goto(f"{(exported / 'index.html').as_uri()}{address}")
                wait_for_words(page, *words, picture=tmp_path / "page.png", seconds=120)
        assert errors == []
        assert requests - {"data"} == {"file"}

    def test_a_hostile_payload_is_only_text(self, browser: Browser, exported, traces):
        """Markup in names, prompts and payload is shown as it is, and runs nowhere."""
        trace_id = f"{trace_id_of(7, HOSTILE, HOSTILE):032x}"
        with browser.open(f"{(exported / 'index.html').as_uri()}#/trajectory/{trace_id}") as page:
            page.get_by_text("</script><script>").first.wait_for(timeout=120_000)
            assert page.evaluate("[window.broken, ({}).polluted]") == [None, None]
