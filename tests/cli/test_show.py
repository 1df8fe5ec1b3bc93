"""`otel-rollout show` as a user meets it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from opentelemetry.sdk.trace import Event

from otel_rollout import semconv
from otel_rollout.cli.main import main
from otel_rollout.folder import scan_frames
from otel_rollout.folder.folder_writer import FolderWriter
from otel_rollout.otlp import decode_spans, request_of_json
from tests.cli.terminal import Terminal
from tests.trace_folder.recordings import (
    SECOND,
    START,
    make_span,
    make_trajectory,
    trace_id_of,
    write_folder,
    write_lines,
)

pytest.importorskip("rich")

ROOT = {semconv.STEP: 1, semconv.SAMPLE_INDEX: 0, semconv.ROLLOUT_N: 0, semconv.EXPERIMENT_NAME: "exp"}
LONG = '{"text":"' + "x" * 5000 + '","token_ids":[' + ",".join(map(str, range(200))) + "]}"


def make_detailed():
    """Return a trajectory with a tool that failed, events, and payloads that are too long for a line."""
    trace_id = trace_id_of(1, 7, 0)
    tool_error = Event(
        semconv.EXCEPTION_EVENT,
        {
            semconv.EXCEPTION_TYPE: "package.ToolError",
            semconv.EXCEPTION_MESSAGE: "no entry",
            semconv.EXCEPTION_STACKTRACE: "Traceback:\n  line 1",
        },
        timestamp=START + SECOND,
    )
    cache_hit = Event("cache hit", {"blocks": 12}, timestamp=START + SECOND // 2)
    tool = {semconv.SPAN_KIND: "TOOL", semconv.INPUT_VALUE: '{"key":"teas"}', semconv.STEP: 1}
    llm = {
        semconv.SPAN_KIND: "LLM",
        semconv.INPUT_VALUE: LONG,
        semconv.OUTPUT_VALUE: '{"token_ids":[1,2,3,4,5,6,7,8,9],"response_text":"I look it up"}',
        semconv.USAGE_INPUT_TOKENS: 90,
        semconv.USAGE_OUTPUT_TOKENS: 9,
    }
    *_, root = make_trajectory(1, 7, 0, payload='"how many?"', scorer="exact")
    return [
        make_span("generate", 2, trace_id, attributes=llm, seconds=(0.0, 0.5), events=(cache_hit,)),
        make_span(
            "look_up",
            3,
            trace_id,
            parent=2,
            attributes=tool,
            seconds=(0.5, 0.6),
            error="ToolError",
            events=(tool_error,),
        ),
        root,
    ]


@pytest.fixture
def folder(tmp_path):
    """One detailed trajectory, one of another step, one that is running."""
    writer = FolderWriter(tmp_path / "traces")
    for spans in (make_detailed(), make_trajectory(2, 0), make_trajectory(2, 1, validate=True), make_trajectory(3)[:2]):
        writer.write(spans)
    yield tmp_path / "traces"
    writer.close()


def show(capsys, *arguments):
    """Return the exit code, the lines printed, and what is on standard error."""
    code = main(["show", *map(str, arguments)])
    shown = capsys.readouterr()
    return code, [line.rstrip() for line in shown.out.splitlines()], shown.err


class TestTree:
    """What is drawn."""

    def test_a_trajectory(self, folder, capsys):
        """Tags and outcome on top; then a line for each span with kind, duration, when it ran and what it was about."""
        code, lines, error = show(capsys, folder, "--step", 1)
        assert (code, error) == (0, "")
        assert lines == [
            "step 1  sample 7  rollout 0  completed  reward 1",
            f"trace {trace_id_of(1, 7, 0):032x}  2023-11-14 22:13:20 UTC",
            f"1.00 s  1 turn  90→2 tokens  3 spans  {lines[2].split('  ')[-1]}",
            "project / exp / run",
            "",
            "rollout        AGENT         1.00 s  ━━━━━━━━━━━━━━━━━━━━  how many? → how many?",
            "└─ generate    LLM         500.0 ms  ━━━━━━━━━━            90→9 tok  " + "x" * 79 + "… → I look it up",
            "   │  • cache hit  +500.0 ms  blocks=12",
            "   └─ look_up  TOOL        100.0 ms            ━━          ToolError: no entry",
        ]

    def test_whole(self, folder, capsys):
        """`--full` shows payloads to their end, the other attributes, and events with theirs."""
        code, lines, _ = show(capsys, folder, "--step", 1, "--full")
        text = "\n".join(lines)
        assert code == 0
        assert "x" * 5000 in text
        assert "token_ids  [200 numbers]" in text
        assert "│  scorer  exact" in text
        assert "Traceback:" in text
        assert "exception.message  no entry" in text
        assert "blocks  12" in text
        assert "response_text  I look it up" in text

    def test_one_that_is_running(self, folder, capsys):
        """Spans whose root has not come are drawn, each as far as its parents are known, and that is said."""
        _, lines, _ = show(capsys, folder, "--step", 3)
        assert lines[0] == "step 3  sample 0  rollout 0  no root: it is running, or its process died"
        assert [line.split()[0] for line in lines[5:]] == ["generate", "look_up"]

    def test_redaction_is_told(self, tmp_path, capsys):
        """Beside JSON, standard error tells how many values redaction had replaced, in which attributes."""
        write_folder(tmp_path, make_trajectory(payload='"[redacted]"'))
        assert main(["show", str(tmp_path), "--json"]) == 0
        assert capsys.readouterr().err == "redaction had replaced 6 values in it: input.value 3, output.value 3\n"

    def test_nothing_acts_on_the_terminal(self, tmp_path, capsys):
        """Control characters in names, payloads, errors and events are replaced, clipped or whole; markup stays."""
        evil = "\x1b[2J\x9b1m\u202e[bold]\r"
        writer = FolderWriter(tmp_path)
        spans = make_trajectory(1, evil, evil, payload=f'{{"{evil}": "{evil}"}}', **{evil: evil})
        event = Event(evil, {evil: evil}, timestamp=START)
        spans[0] = make_span(evil, 2, trace_id_of(1, evil, evil), error=evil, events=(event,), attributes={evil: evil})
        writer.write(spans)
        writer.close()
        for arguments in ([], ["--full"], ["--json"]):
            assert main(["show", str(tmp_path), *arguments]) == 0
            shown = capsys.readouterr().out
            assert all(line.isprintable() for line in shown.split("\n")), arguments
            assert arguments == ["--json"] or "[bold]" in shown

    def test_long_texts_keep_the_guides(self, folder, capsys, monkeypatch):
        """On a terminal `--full` wraps texts at words, with the guides before each line; texts come before ids."""
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", "60")
        _, lines, _ = show(capsys, folder, "--step", 1, "--full")
        tree = [re.sub("\x1b\\[[0-9;]*m", "", line) for line in lines][5:]
        assert max(map(len, tree)) <= 60
        assert [line for line in tree if "xxx" in line and not line.startswith("   │      ")] == []
        labels = [line.split()[1] for line in tree if "token_ids" in line or "response_text" in line]
        assert labels == ["token_ids", "response_text", "token_ids"]

    def test_on_a_narrow_terminal_words_stay(self, folder, capsys, monkeypatch):
        """A narrow terminal gets no bars and no kinds, and room for what was said."""
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", "44")
        _, lines, _ = show(capsys, folder, "--step", 1)
        tree = [re.sub("\x1b\\[[0-9;]*m", "", line) for line in lines][5:]
        assert tree[1] == "└─ generate     500.0 ms  I look it up"

    def test_on_a_terminal_lines_are_clipped(self, folder):
        """On a real terminal of 80 columns each span keeps to one line, in colour."""
        code, shown = on_a_terminal(folder, "--step", "1")
        assert code == 0
        assert "\x1b[" in shown
        lines = re.sub("\x1b\\[[0-9;]*m", "", shown).splitlines()
        tree = lines[5:]
        assert [re.findall("[a-z_]+", line)[0] for line in tree] == ["rollout", "generate", "cache", "look_up"]
        assert all(len(line) <= 80 for line in tree)


def on_a_terminal(folder: Path, *arguments: str) -> tuple[int, str]:
    """Return the exit code of `show` on a terminal of 80 columns, and what it printed."""
    terminal = Terminal([sys.executable, "-m", "otel_rollout.cli", "show", folder], *arguments, COLUMNS="80")
    return terminal.wait(), terminal.screen


class TestWhich:
    """Which trajectory is shown."""

    def test_by_the_beginning_of_its_id(self, folder, capsys):
        """A trace id, whole or its beginning, is enough."""
        trace_id = f"{trace_id_of(2, 0, 0):032x}"
        for given in (trace_id, trace_id[:8].upper()):
            code, lines, _ = show(capsys, folder, "--trace", given)
            assert (code, lines[0]) == (0, "step 2  sample 0  rollout 0  completed  reward 1")

    def test_by_its_tags(self, folder, capsys):
        """Step, sample and rollout name one; validation is told apart."""
        code, lines, _ = show(capsys, folder, "--step", 2, "--validate")
        assert (code, lines[0]) == (0, "step 2 val  sample 1  rollout 0  completed  reward 1")

    def test_several(self, folder, capsys):
        """Where more than one matches, they are listed, with what tells them apart."""
        code, lines, error = show(capsys, folder, "--step", 2)
        outcome = "--rollout 0  completed  reward 1  --experiment exp"
        assert (code, lines) == (2, [])
        assert error.splitlines() == [
            "2 trajectories match; pick one with --train or --validate, --sample, or with --trace",
            f"  --trace {trace_id_of(2, 0, 0):032x}  --step 2              --sample 0  {outcome}",
            f"  --trace {trace_id_of(2, 1, 0, validate=True):032x}  --step 2  --validate  --sample 1  {outcome}",
        ]

    def test_several_on_a_terminal(self, tmp_path):
        """Each has one line, with as much of its id as tells it apart; without room, its outcome goes first."""
        traces = [make_trajectory(1, sample, 0, validate=sample > 1) for sample in range(4)]
        write_lines(tmp_path / "traces.jsonl", *traces, make_trajectory(1000, 1, 100_000))
        code, shown = on_a_terminal(tmp_path)
        rows = [line.split() for line in shown.splitlines() if line.startswith("  --trace ")]
        assert code == 2
        assert max(map(len, shown.splitlines())) <= 80
        assert len({row[1] for row in rows}) == len(rows) == 5
        assert all("--sample" in row and "--rollout" in row for row in rows), shown
        assert "completed" not in shown

    def test_several_without_tags(self, tmp_path, capsys):
        """A tag that a trajectory doesn't have is not named, as no filter could find it."""
        write_lines(tmp_path / "traces.jsonl", make_trajectory(1, None, None), make_trajectory(None, 5, None))
        code, _, error = show(capsys, tmp_path)
        assert code == 2
        assert error.splitlines()[1:] == [
            f"  --trace {trace_id_of(1, None, None):032x}  --step 1              completed  reward 1  --experiment exp",
            f"  --trace {trace_id_of(None, 5, None):032x}            --sample 5  completed  reward 1  --experiment exp",
        ]

    def test_very_many(self, tmp_path, capsys):
        """Of very many, the first are named."""
        write_folder(tmp_path, *(make_trajectory(1, sample) for sample in range(30)))
        code, _, error = show(capsys, tmp_path)
        assert code == 2
        first, *others = error.splitlines()
        assert first.startswith("30 trajectories match, of which these are the first 20; pick one with --sample")
        assert [re.findall(r"--sample (\d+)", line) for line in others] == [[str(sample)] for sample in range(20)]

    def test_the_same_tags_twice(self, tmp_path, capsys):
        """If two runs have the same rollout, only the trace id tells them apart, and that is said."""
        tags = trace_id_of(1, 0, 0)
        write_lines(tmp_path / "a.jsonl", make_trajectory(1, 0, 0))
        write_lines(tmp_path / "b.jsonl", [make_span("other", 9, tags + 1, parent=None, attributes=dict(ROOT))])
        _, _, error = show(capsys, tmp_path, "--step", 1, "--sample", 0, "--rollout", 0)
        assert error.splitlines()[0] == "2 trajectories match; pick one with --trace: their tags are the same"
        write_lines(tmp_path / "c.jsonl", make_trajectory(1, 1, 0, experiment="next"))
        _, _, error = show(capsys, tmp_path, "--step", 1, "--rollout", 0)
        assert error.splitlines()[0] == "3 trajectories match; pick one with --trace: some have the same tags"

    def test_by_its_run(self, tmp_path, capsys):
        """The same rollout of two runs is told apart by the runs, of which the beginning will do."""
        for run_id, name in (("aaaa-1", "first"), ("bbbb-2", "second")):
            span = make_span(name, 9, trace_id_of(1, 0, len(name)), parent=None, attributes=dict(ROOT), run_id=run_id)
            write_lines(tmp_path / f"{name}.jsonl", [span])
        code, _, error = show(capsys, tmp_path, "--step", 1)
        assert code == 2
        assert error.splitlines()[0] == "2 trajectories match; pick one with --run, or with --trace"
        assert [line.split()[-2:] for line in error.splitlines()[1:]] == [["--run", "aaaa-1"], ["--run", "bbbb-2"]]
        code, lines, _ = show(capsys, tmp_path, "--step", 1, "--run", "bb")
        assert (code, lines[3]) == (0, "project / exp / bbbb-2")
        code, _, error = show(capsys, tmp_path, "--run", "cc")
        assert (code, error) == (2, f"no trajectory in {tmp_path} matches: its runs are aaaa-1, bbbb-2\n")

    def test_none(self, folder, capsys):
        """One that is not there is an error."""
        code, lines, error = show(capsys, folder, "--trace", "00000000")
        assert (code, lines) == (2, [])
        assert str(folder) in error

    @pytest.mark.parametrize("trace_id", ["xyz", "", "0" * 33])
    def test_what_is_no_trace_id(self, folder, capsys, trace_id):
        """What can't be the beginning of a trace id is a usage error."""
        with pytest.raises(SystemExit) as ended:
            main(["show", str(folder), "--trace", trace_id])
        assert ended.value.code == 2
        assert "is not the beginning of a trace id" in capsys.readouterr().err


class TestJson:
    """`--json`."""

    def test_is_one_line_of_otlp(self, folder, capsys):
        """The trajectory as any OTLP receiver takes it, with all that was recorded."""
        assert main(["show", str(folder), "--step", "1", "--json"]) == 0
        [line] = capsys.readouterr().out.splitlines()
        recorded = make_detailed()
        shown = decode_spans(request_of_json(line.encode()))
        assert [span.to_json() for span in shown] == [span.to_json() for span in recorded]
        assert len(orjson.loads(line)["resourceSpans"]) == 1


class TestDamage:
    """What can't be shown."""

    @pytest.mark.parametrize("options", [[], ["--full"], ["--json"]])
    def test_a_damaged_frame_is_one_line(self, folder, capsys, options):
        """It says what is damaged, and where; the exit code says that the folder is to be looked at."""
        [path] = (folder / "steps=000000-000099").glob("*.otlp.zst")
        data = bytearray(path.read_bytes())
        *_, last = scan_frames(path)
        data[last.offset + last.length // 2] ^= 0xFF
        path.write_bytes(data)
        code, _, errors = show(capsys, folder, "--step", "2", "--train", *options)
        assert code == 2
        assert errors.startswith(f"otel-rollout show: {path}: the frame at {last.offset} is damaged")
        assert errors.count("\n") == 1

    def test_what_a_library_logs_can_not_draw_on_the_terminal(self, tmp_path):
        """The SDK names attributes that it drops, in a trace of somebody else's."""
        value = {"kvlistValue": {"values": []}}
        resource = {"attributes": [{"key": "\x1b[31mred", "value": value}, {"key": "", "value": value}]}
        span = {"traceId": "0" * 31 + "1", "spanId": "0" * 15 + "2", "name": "op"}
        line = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}
        (tmp_path / "export.jsonl").write_text(json.dumps(line) + "\n")
        program = [sys.executable, "-m", "otel_rollout.cli", "show", tmp_path]
        done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=True)
        assert "invalid attribute key" in done.stderr
        assert "\x1b" not in done.stdout + done.stderr

    def test_a_name_can_not_draw_on_the_terminal(self, tmp_path, capsys):
        """An error that names a file is text alone, whatever the file is called."""
        place = tmp_path / "\x1b[31m" / "steps=000000-000099"
        write_folder(place.parent, make_trajectory(1))
        [path] = place.glob("*.otlp.zst")
        path.write_bytes(path.read_bytes()[:-1] + b"x")
        code, _, errors = show(capsys, place.parent, "--step", "1")
        assert (code, "\x1b" in errors) == (2, False)
        code, _, errors = show(capsys, tmp_path / "\x1b[31mnone")
        assert (code, "\x1b" in errors) == (2, False)
        code, _, errors = show(capsys, place.parent, "--step", "5")
        assert (code, "\x1b" in errors) == (2, False)
