"""`otel-rollout show --chat` as a user meets it."""

from __future__ import annotations

import json
import re

import pytest

from otel_rollout import semconv
from otel_rollout.cli.main import main
from tests.trace_folder.recordings import make_span, make_trajectory, trace_id_of, write_lines

pytest.importorskip("rich")

SAID = "I look the price up, then I add. " * 6
MESSAGES = [{"role": "user", "content": "How much is it?\n\tAnd how many?"}]
CALL = {"id": "1", "function": {"name": "look_up", "arguments": '{"key": "teas"}'}}


def chat(capsys, folder, *arguments):
    """Return the lines below the heading."""
    assert main(["show", str(folder), "--chat", *arguments]) == 0
    shown = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
    return [line.rstrip() for line in shown.splitlines()][5:]


def write(folder, said=SAID, **root):
    """Write a trajectory with one generation."""
    attributes = {
        semconv.SPAN_KIND: "LLM",
        semconv.INPUT_VALUE: json.dumps({"messages": MESSAGES}),
        semconv.OUTPUT_VALUE: json.dumps({"role": "assistant", "content": said, "tool_calls": [CALL]}),
        semconv.USAGE_OUTPUT_TOKENS: 9,
    }
    *_, last = make_trajectory(1, 0, 0, **root)
    write_lines(folder / "traces.jsonl", [make_span("chat", 2, trace_id_of(1, 0, 0), attributes=attributes), last])


def test_roles_texts_calls_and_reward(tmp_path, capsys):
    """Each message stands below its role; the reward and its parts come last."""
    write(
        tmp_path,
        "Wait.",
        **{semconv.REWARD_PARTS: json.dumps({"format": {"value": 0.25, "explanation": "no tag"}, "ok": True})},
    )
    assert chat(capsys, tmp_path) == [
        "user",
        "  How much is it?",
        "      And how many?",
        "",
        "assistant  9 tokens  1.00 s",
        "  Wait.",
        '  → look_up(key="teas")',
        "",
        "reward 1",
        "  format  0.25  no tag",
        "  ok      True",
    ]


def test_words_wrap_on_a_terminal(tmp_path, capsys, monkeypatch):
    """On a terminal no line is longer than the screen, and no word is broken; in a pipe a line stays whole."""
    write(tmp_path)
    assert f"  {SAID.strip()}" in chat(capsys, tmp_path)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "40")
    lines = chat(capsys, tmp_path)
    assert max(map(len, lines)) <= 40
    said = lines[lines.index("assistant  9 tokens  1.00 s") + 1 : lines.index('  → look_up(key="teas")')]
    assert " ".join(said).split() == SAID.split()


def test_the_models_text_can_not_draw_on_the_terminal(tmp_path, capsys):
    """Escape sequences and control characters are replaced; markup is shown as it is."""
    write(tmp_path, "\x1b[2J\x9b1m\u202e[bold]\r\x07")
    lines = chat(capsys, tmp_path)
    assert all(line.isprintable() for line in lines)
    assert any("�[2J�1m�[bold]" in line for line in lines)


def test_how_it_ended(tmp_path, capsys):
    """A trajectory that failed says so, and that it has no reward."""
    write(tmp_path, "Wait.", status="error", reward=None)
    assert chat(capsys, tmp_path)[-2:] == ["error: failed", "no reward"]


def test_it_excludes_the_other_forms(tmp_path, capsys):
    """One of `--chat`, `--full` and `--json` is taken."""
    with pytest.raises(SystemExit) as ended:
        main(["show", str(tmp_path), "--chat", "--full"])
    assert ended.value.code == 2
    assert "not allowed with argument" in capsys.readouterr().err


def test_reasoning_stands_before_the_text(tmp_path, capsys):
    """It has a line of its own above it, and is indented."""
    write(tmp_path, "<think>\nTwo prices.\n</think>\n\nWait.")
    assert chat(capsys, tmp_path)[4:8] == ["assistant  9 tokens  1.00 s", "  reasoning:", "    Two prices.", "  Wait."]


def test_conversations(tmp_path, capsys):
    """A sub-agent stands further in; main goes on with what is new; a fork and a compaction say what they come from."""

    def generation(number, prompt, said, parent=1, **more):
        attributes = {
            semconv.SPAN_KIND: "LLM",
            semconv.INPUT_VALUE: json.dumps({"messages": prompt}),
            semconv.OUTPUT_VALUE: json.dumps({"role": "assistant", "content": said}),
            **more,
        }
        seconds = (number / 100, number / 100 + 0.001)
        return make_span("llm", number, trace_id_of(1, 0, 0), parent=parent, attributes=attributes, seconds=seconds)

    def user(text):
        return {"role": "user", "content": text}

    main = [{"role": "system", "content": "main"}, user("q"), {"role": "assistant", "content": "a"}, user("it says r")]
    agent = {semconv.SPAN_KIND: "AGENT", semconv.AGENT_NAME: "reader", semconv.TRAINED: False}
    spans = [
        generation(10, main[:2], "a"),
        make_span("read", 11, trace_id_of(1, 0, 0), attributes=agent, seconds=(0.11, 0.13)),
        generation(12, [user("part")], "r", parent=11),
        generation(14, main, "b"),
        generation(15, [*main[:3], user("other")], "c"),
        generation(16, [main[0], user("short")], "d", **{semconv.COMPACTED: True}),
    ]
    *_, root = make_trajectory(1, 0, 0)
    write_lines(tmp_path / "traces.jsonl", [*spans, root])
    lines = [line for line in chat(capsys, tmp_path) if line]
    assert [line.split("  1.0 ms")[0] for line in lines] == [
        "system",
        "  main",
        "user",
        "  q",
        "assistant",
        "  a",
        "  ── 2 sub-agent reader, of 1 main after turn 1, not trained",
        "  user",
        "    part",
        "  assistant",
        "    r",
        "── back to 1 main",
        "user",
        "  it says r",
        "assistant",
        "  b",
        "── 3 fork of 1 main after turn 1: shares 3 messages, inferred",
        "user",
        "  other",
        "assistant",
        "  c",
        "── 4 compacted: replaces 4 messages of 3",
        "user",
        "  short",
        "assistant",
        "  d",
        "reward 1",
    ]
