"""What a notebook shows of objects: tables in HTML, in which texts of programs and models are no markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from otel_rollout import ExporterStats, Stats, Trajectory, read_trajectories
from otel_rollout.catalog import Run
from tests.trace_folder.recordings import make_trajectory, write_folder

MARKUP = "<script>alert(1)</script>"


class _Cells(HTMLParser):
    """The texts of cells, row by row; other elements than a table's are an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.caption = ""
        self._tag = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        assert (tag in ("table", "caption", "thead", "tbody", "tr", "th", "td"), attrs) == (True, [])
        self._tag = tag
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_data(self, data):
        if self._tag == "caption":
            self.caption += data
        else:
            self.rows[-1][-1] += data


def test_a_recorded_trajectory(tmp_path):
    """It is a row with its tags and its outcome; what is unknown is empty."""
    recorded = make_trajectory(2, MARKUP, None, reward=1 / 3)
    [trajectory] = read_trajectories(write_folder(tmp_path, recorded))
    shown = _Cells(trajectory._repr_html_())
    row = dict(zip(*shown.rows, strict=True))
    assert row.pop("trace_id") == trajectory.trace_id
    assert row == {
        "experiment_name": "exp",
        "step": "2",
        "sample_index": MARKUP,
        "rollout_n": "",
        "validate": "False",
        "status": "completed",
        "reward": "0.333333",
        "seconds": "1",
    }
    assert shown.caption == trajectory.name


def test_stats():
    """Each exporter is a row, under the line that `str` gives."""
    stats = Stats({"otlp": ExporterStats(7, 5, 1, lost={"refused": 1}, last_error=MARKUP), "file": ExporterStats(7, 7)})
    shown = _Cells(stats._repr_html_())
    assert shown.rows[1:] == [["otlp", "7", "5", "1", "0", "1", MARKUP], ["file", "7", "7", "0", "0", "0", ""]]
    assert shown.caption == str(stats)
    assert repr(stats) == f"<Stats {stats}>"


def test_a_folder(tmp_path):
    """Its last twenty steps are rows, with their trajectories and rewards."""
    run = Run([write_folder(tmp_path / "a<b>", *(make_trajectory(step, experiment=MARKUP) for step in range(23)))])
    assert repr(run) == f"<Run {tmp_path}/a<b>>"
    shown = _Cells(run._repr_html_())
    assert [row[:4] for row in shown.rows[1:]] == [[MARKUP, str(step), "False", "1"] for step in range(3, 23)]
    assert shown.caption == f"{tmp_path}/a<b>, the last 20 of 23 steps"


def test_a_trajectory_that_is_traced():
    """Its `repr` has its tags and its trace, if there is one."""
    assert repr(Trajectory(7, 1, 0, "solve", False)) == "<Trajectory without a trace step=1 sample_index=7 rollout_n=0>"


def test_long_texts_are_cut(tmp_path):
    """A cell has a line of 200 characters at most, and no control characters."""
    [trajectory] = read_trajectories(write_folder(tmp_path, make_trajectory(1, "\x1b[31m" + "x" * 1000)))
    [cell] = re.findall("<td>([^<]*…)</td>", trajectory._repr_html_())
    assert len(cell) == 200
    assert cell.isprintable()
