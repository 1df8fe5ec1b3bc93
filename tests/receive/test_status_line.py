"""The receiver's line on a terminal."""

from __future__ import annotations

import sys

from otel_rollout.receive import Receiver, StatusLine, open_folder


def test_terminal(tmp_path, monkeypatch, capsys) -> None:
    """On a terminal one line, rewritten, has the rate, the spans and the disk's trouble without control characters."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    receiver = Receiver(open_folder(tmp_path / "traces"))
    line = StatusLine(receiver)
    receiver.totals.spans, receiver.totals.trouble = 1234, "no space\x1b[2J"
    line.show()
    line.clear()
    shown, cleared = capsys.readouterr().err.split("\r\x1b[K")[1:]
    assert "1,234 spans  0 trajectories open  no space\N{REPLACEMENT CHARACTER}[2J" in shown
    assert (shown.split()[1], cleared, "\n" in shown) == ("spans/s", "", False)


def test_elsewhere(tmp_path, capsys) -> None:
    """A log gets no such line."""
    StatusLine(Receiver(open_folder(tmp_path / "traces"))).show()
    assert capsys.readouterr().err == ""
