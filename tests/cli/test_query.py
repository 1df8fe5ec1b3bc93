"""`otel-rollout query` as a user meets it."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from threading import Timer

import pytest
from opentelemetry.sdk.resources import Resource

from otel_rollout import semconv
from otel_rollout.catalog import SQL_COLUMNS, QueryError, Run
from otel_rollout.cli.main import main
from otel_rollout.folder.folder_writer import FolderWriter
from tests.trace_folder.recordings import make_span, make_trajectory, trace_id_of, write_folder

pytest.importorskip("rich")

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two steps of two rollouts each."""
    write_folder(tmp_path / "traces", *(make_trajectory(step, rollout) for step in (1, 2) for rollout in (0, 1)))
    monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(tmp_path / "traces"))
    return tmp_path / "traces"


def ask(capsys, *arguments: str) -> list[dict[str, object]]:
    """Return the rows of an answer."""
    assert main(["query", *arguments, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def refused(capsys, *arguments: str) -> str:
    """Return what is said of a question that is not answered."""
    assert main(["query", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    return shown.err


@pytest.fixture
def hosts(tmp_path, monkeypatch):
    """Two steps on two hosts and engines; in the second rollouts, longer and worse, the tool fails."""
    writer = FolderWriter(tmp_path / "hosts")
    for step, rollout in itertools.product((1, 2), (0, 1)):
        said = "Let me look it up." if rollout else "42"
        generation = {
            semconv.SPAN_KIND: "LLM",
            semconv.OUTPUT_MESSAGES: json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": said}]}]),
            semconv.SERVER_ADDRESS: f"gpu-{rollout}",
            semconv.SERVER_PORT: 8000,
        }
        call = {semconv.SPAN_KIND: "TOOL", semconv.TOOL_NAME: "search"}
        tokens = {semconv.OUTPUT_TOKENS: 20 + 100 * rollout}
        trace_id = trace_id_of(step, 0, rollout)
        spans = [
            make_span("generate", 2, trace_id, attributes=generation),
            make_span("search", 3, trace_id, attributes=call, error="took 30 s" if rollout else None),
            make_trajectory(step, 0, rollout, reward=1.0 - rollout, **tokens)[-1],
        ]
        for span in spans:
            span._resource = Resource({semconv.HOST_NAME: f"node-{rollout}"})
        writer.write(spans)
    writer.close()
    monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(tmp_path / "hosts"))
    return tmp_path / "hosts"


THIRTEEN = [
    ("SELECT step, avg(reward), stddev(reward) FROM trajectories GROUP BY step", [(1, 0.5, 0.5), (2, 0.5, 0.5)]),
    ("SELECT tool_name, count(*) FROM spans WHERE kind = 'TOOL' GROUP BY tool_name", [("search", 4)]),
    ("SELECT tool_name, sum(errors) FROM tools GROUP BY tool_name", [("search", 2)]),
    ("SELECT node, avg(reward) FROM trajectories GROUP BY node", [("node-0", 1.0), ("node-1", 0.0)]),
    ("SELECT engine, host, count(*) FROM spans WHERE engine LIKE '%1:%' GROUP BY 1, 2", [("gpu-1:8000", "node-1", 2)]),
    ("SELECT p99(output_tokens), quantile(output_tokens, 0.5), median(turns) FROM trajectories", [(120.0, 70.0, 1.0)]),
    ("SELECT percentile(output_tokens, 75) FROM trajectories", [(120.0,)]),
    ("SELECT error_message, count(*) FROM spans WHERE error_message IS NOT NULL GROUP BY 1", [("took 30 s", 2)]),
    ("SELECT corr(output_tokens, reward), corr(reward, 1) FROM trajectories", [(-1.0, None)]),
    ("SELECT count(*) FROM messages WHERE content REGEXP '^[0-9]+$'", [(2,)]),
    ("SELECT date(start_time), count(*) FROM trajectories GROUP BY date(start_time)", [("2023-11-14", 4)]),
    ("SELECT start_utc, strftime('%H', end_utc) FROM steps WHERE step = 1", [("2023-11-14T22:13:20.000Z", "22")]),
    ("SELECT role, max(length(content)) FROM messages WHERE role = 'assistant' GROUP BY role", [("assistant", 18)]),
]
"""Questions as people guess them, with the answers."""


class TestFirstTry:
    """Questions with the names that people try first."""

    def test_thirteen_questions(self, hosts, capsys):
        """Each is answered as it was guessed; a name that is read as another one is told."""
        for sql, rows in THIRTEEN:
            assert [tuple(row.values()) for row in ask(capsys, sql)] == rows, sql
        assert main(["query", "SELECT tool_name FROM spans WHERE kind = 'TOOL' LIMIT 1", "--csv"]) == 0
        assert capsys.readouterr() == ("tool\nsearch\n", "tool_name is read as tool\n")

    def test_a_name_in_a_text_stays(self, hosts, capsys):
        """Only names of columns are read as others, not texts, nor a name that the question gives itself."""
        sql = "SELECT 'tool_name' AS text, tool_name FROM spans WHERE kind = 'TOOL' LIMIT 1"
        assert ask(capsys, sql) == [{"text": "tool_name", "tool": "search"}]
        sql = "SELECT x.node FROM (SELECT host AS node FROM trajectories LIMIT 1) x"
        assert ask(capsys, sql) == [{"node": "node-0"}]

    def test_folders_and_options_in_any_order(self, hosts, tmp_path, capsys, monkeypatch):
        """The question is the one that is no folder."""
        monkeypatch.delenv("OTEL_ROLLOUT_DIR")
        sql, folder = "SELECT count(*) AS number FROM trajectories", str(hosts)
        for line in ([sql, folder], [folder, sql], ["--step", "1..2", folder, "--limit", "9", sql]):
            assert ask(capsys, *line) == [{"number": 4}]
        assert main(["query", sql, "--csv", folder]) == 0
        assert capsys.readouterr().out == "number\n4\n"
        assert "there are two questions" in refused(capsys, sql, folder, sql)

    def test_schema(self, capsys):
        """The columns of a table, or of all, with type and meaning, without a folder."""
        rows = ask(capsys, "--schema", "spans")
        assert ["spans", "tool", "text", None, "of a tool call, the tool"] in [list(row.values()) for row in rows]
        for more in ([], ["."]):
            assert {row["table"] for row in ask(capsys, "--schema", *more)} == {*SQL_COLUMNS}
        assert "did you mean 'spans'?; there are trajectories, rewards" in refused(capsys, "--schema", "span")

    def test_times_of_other_forms(self, hosts, capsys):
        """Functions of dates go on taking texts and seconds; null stays null."""
        sql = "SELECT date(0, 'unixepoch'), datetime('2024-01-02 03:04:05', '+1 day'), date(NULL), utc('x'), date('x')"
        assert list(ask(capsys, sql)[0].values()) == ["1970-01-01", "2024-01-03 03:04:05", None, None, None]


class TestAnswers:
    """What is printed."""

    def test_rows_of_each_form(self, folder, capsys):
        """A table, JSON and CSV have the same values."""
        sql = "SELECT step, count(*) AS number FROM trajectories GROUP BY step"
        assert ask(capsys, sql) == [{"step": 1, "number": 2}, {"step": 2, "number": 2}]
        assert main(["query", sql, "--csv"]) == 0
        assert list(csv.reader(io.StringIO(capsys.readouterr().out))) == [["step", "number"], ["1", "2"], ["2", "2"]]
        assert main(["query", sql]) == 0
        assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
            ["step", "number"],
            ["1", "2"],
            ["2", "2"],
        ]

    def test_parquet(self, folder, capsys, tmp_path):
        """A file has the rows, with the types of their values; it replaces one that is there as a whole."""
        pq = pytest.importorskip("pyarrow.parquet")
        path = tmp_path / "answer.parquet"
        for sql in (
            "SELECT 1 AS old",
            "SELECT step, reward, NULL AS no, name, step / 2.0 AS h FROM trajectories LIMIT 1",
        ):
            assert main(["query", sql, "--parquet", str(path)]) == 0
        found = pq.read_table(path)
        assert [str(kind) for kind in found.schema.types] == ["int64", "double", "string", "string", "double"]
        assert found.to_pylist() == [{"step": 1, "reward": 1.0, "no": None, "name": "rollout", "h": 0.5}]
        assert main(["query", "SELECT 1 AS x WHERE 0", "--parquet", str(path)]) == 0
        assert pq.read_table(path).schema.names == ["x"]
        assert [each.name for each in tmp_path.iterdir() if "answer" in each.name] == ["answer.parquet"]

    def test_parquet_after_a_kill(self, folder, tmp_path):
        """What a killed call left of a longer file is no part of the next one."""
        pq = pytest.importorskip("pyarrow.parquet")
        (tmp_path / ".answer.parquet.new").write_bytes(bytes(99_999))
        assert main(["query", "SELECT 1 AS x", "--parquet", str(tmp_path / "answer.parquet")]) == 0
        assert pq.read_table(tmp_path / "answer.parquet").to_pylist() == [{"x": 1}]

    def test_redaction_is_told(self, tmp_path, capsys):
        """Beside an answer for programs, standard error tells how many values redaction had replaced, by column."""
        write_folder(tmp_path / "secret", make_trajectory(payload='"[redacted] and [redacted]"'))
        sql = "SELECT name, input, output AS given FROM spans WHERE kind = 'LLM'"
        for form in ("--json", "--csv"):
            assert main(["query", sql, str(tmp_path / "secret"), form]) == 0
            told = "redaction had replaced 4 values in it: given 2, input 2\n"
            assert capsys.readouterr().err == told
        assert main(["query", "SELECT name FROM spans", str(tmp_path / "secret"), "--json"]) == 0
        assert capsys.readouterr().err == ""

    @pytest.mark.parametrize(("steps", "way"), [((), "name fewer steps"), (("--step", "1"), "otel-rollout export")])
    def test_steps_above_the_limit(self, folder, capsys, monkeypatch, steps, way):
        """A question that reads the spans of too many trajectories is refused, with a way to ask it."""
        monkeypatch.setattr("otel_rollout.catalog.spans.MAX_SPAN_BYTES", 100)
        assert way in refused(capsys, *steps, "SELECT count(*) FROM spans")

    def test_spans_are_read_for_the_question(self, folder, capsys):
        """Spans and messages are those of the steps that are asked for, also after others were read."""
        sql = "SELECT step, count(DISTINCT trace_id) AS number FROM spans GROUP BY step"
        assert ask(capsys, sql, "--step", "2") == [{"step": 2, "number": 2}]
        assert ask(capsys, sql, "--step", "1") == [{"step": 1, "number": 2}]
        assert ask(capsys, sql) == [{"step": 1, "number": 2}, {"step": 2, "number": 2}]

    def test_conversations(self, tmp_path, capsys):
        """A row for each, whose number is in the rows of its spans and messages."""

        def generation(number, text, parent=1):
            attributes = {semconv.SPAN_KIND: "LLM", semconv.INPUT_VALUE: text, semconv.OUTPUT_VALUE: "done"}
            attributes |= {semconv.USAGE_INPUT_TOKENS: 5, semconv.USAGE_OUTPUT_TOKENS: number}
            seconds = (number / 100, number / 100 + 0.01)
            return make_span("llm", number, trace_id_of(1, 0, 0), parent=parent, attributes=attributes, seconds=seconds)

        agent = {semconv.SPAN_KIND: "AGENT", semconv.TRAINED: False}
        *_, root = make_trajectory(1, 0, 0)
        writer = FolderWriter(tmp_path)
        reader = make_span("reader", 4, trace_id_of(1, 0, 0), attributes=agent, seconds=(0.03, 0.06))
        writer.write([generation(2, "q"), reader, generation(5, "part", parent=4), root])
        writer.close()
        columns = "kind, name, parent, parent_turn, turns, input_tokens, output_tokens, messages, trained, seconds"
        main, sub = ask(capsys, f"SELECT {columns} FROM conversations ORDER BY conversation", str(tmp_path))
        assert list(main.values()) == ["main", None, None, None, 1, 5, 2, 2, None, 0.01]
        assert list(sub.values()) == ["subagent", "reader", 1, 1, 1, 5, 5, 2, 0, 0.01]
        for table, rows in (("spans", [(None, 1), (1, 1), (2, 2)]), ("messages", [(1, 2), (2, 2)])):
            sql = f"SELECT conversation, count(*) AS number FROM {table} GROUP BY 1 ORDER BY 1"
            assert [tuple(row.values()) for row in ask(capsys, sql, str(tmp_path))] == rows
        sql = "SELECT conversations, subagents, forks, compactions FROM trajectories"
        assert [tuple(row.values()) for row in ask(capsys, sql, str(tmp_path))] == [(2, 1, 0, 0)]

    def test_spans_of_a_step_that_grew(self, folder, capsys):
        """A step's spans are read again once it has more of them."""
        sql = "SELECT count(DISTINCT trace_id) AS number FROM spans"
        assert ask(capsys, sql) == [{"number": 4}]
        write_folder(folder, make_trajectory(2, 2))
        assert ask(capsys, sql) == [{"number": 5}]

    def test_each_table_has_only_the_rows_that_are_asked_for(self, folder, capsys):
        """`--step`, `--experiment` and `--run` narrow all tables."""
        for table in ("trajectories", "steps", "groups", "spans", "messages", "conversations"):
            rows = ask(capsys, f"SELECT DISTINCT step FROM {table}", "--step", "2..5")
            assert rows in ([{"step": 2}], []), table
            for option in ("--experiment", "--run"):
                assert ask(capsys, f"SELECT * FROM {table}", option, "it's another") == []

    def test_several_folders(self, folder, tmp_path, capsys):
        """Folders are asked together."""
        write_folder(tmp_path / "more", make_trajectory(7, 0))
        rows = ask(capsys, "SELECT step FROM steps", str(folder), str(tmp_path / "more"))
        assert rows == [{"step": 1}, {"step": 2}, {"step": 7}]
        assert "there is no trace folder nowhere" in refused(capsys, "SELECT 1", str(folder), "nowhere")

    def test_names_in_double_quotes(self, folder, capsys):
        """They are names of columns and aliases, and texts and comments may have double quotes."""
        sql = """SELECT "step" AS "the ""step`", '"' AS "b" /* "c" */ FROM steps ORDER BY "the ""step`" DESC -- "d\""""
        assert ask(capsys, sql) == [{'the "step`': 2, "b": '"'}, {'the "step`': 1, "b": '"'}]

    def test_columns_of_one_name(self, folder, capsys, tmp_path):
        """JSON and Parquet have each of the columns, under a name of its own."""
        pq = pytest.importorskip("pyarrow.parquet")
        sql = "SELECT 1 AS a, 2 AS a, 3 AS a_2, 4 AS a"
        expected = {"a": 1, "a_3": 2, "a_2": 3, "a_4": 4}
        assert ask(capsys, sql) == [expected]
        assert main(["query", sql, "--parquet", str(tmp_path / "x.parquet")]) == 0
        assert pq.read_table(tmp_path / "x.parquet").to_pylist() == [expected]

    def test_question_in_a_pipe(self, folder, capsys, monkeypatch):
        """Standard input is the question."""
        monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT count(*) AS number\nFROM trajectories;\n"))
        assert ask(capsys) == [{"number": 4}]

    def test_lists_and_mappings(self, folder, capsys):
        """Tables of JSON are there also once the folder was read."""
        Run([folder]).steps()
        sql = "SELECT j.key, t.value FROM trajectories, json_each(tools) j, json_tree(j.value) t WHERE t.key = 0"
        assert ask(capsys, sql) == [{"key": "look_up", "value": 1}] * 4
        sql = "SELECT counts(step) AS steps, counts(reward) AS rewards FROM trajectories"
        assert ask(capsys, sql) == [{"steps": '{"1":2,"2":2}', "rewards": '{"1.0":4}'}]


class TestLimits:
    """What ends a question."""

    def test_rows(self, folder, capsys):
        """More rows than the limit are left out, and that is said."""
        assert main(["query", "SELECT trace_id FROM trajectories", "--limit", "3", "--csv"]) == 0
        shown = capsys.readouterr()
        assert len(shown.out.splitlines()) == 4
        assert "more than 3 rows" in shown.err

    def test_bytes(self, folder, capsys, monkeypatch):
        """Rows end at a bound in bytes, and that is said; a limit of any size is taken."""
        monkeypatch.setattr("otel_rollout.catalog.rollout_run.MAX_ANSWER_BYTES", 300)
        assert main(["query", "SELECT trace_id FROM trajectories, steps", "--limit", str(2**40), "--csv"]) == 0
        shown = capsys.readouterr()
        assert 2 <= len(shown.out.splitlines()) < 8
        assert "there are more rows than" in shown.err

    @pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no such limit")
    @pytest.mark.parametrize("function", ["group_concat", "json_group_array"])
    def test_one_value(self, folder, capsys, monkeypatch, function):
        """A value of everything ends at the same bound, and that is said."""
        monkeypatch.setattr("otel_rollout.catalog.query.MAX_ANSWER_BYTES", 2**20)
        numbers = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 999999)"
        sql = f"{numbers} SELECT {function}(x) FROM n"
        assert "a value of its answer has more than 1 MiB" in refused(capsys, sql)
        assert ask(capsys, "SELECT count(*) AS number FROM trajectories") == [{"number": 4}]

    def test_patterns_are_of_the_command_line(self, folder):
        """No other caller has REGEXP."""
        with pytest.raises(QueryError, match="on the command line alone"):
            Run([folder]).query("SELECT name FROM trajectories WHERE name REGEXP 'x'", max_rows=1, seconds=60)

    def test_memory(self, folder):
        """Rows that SQLite sorts are on the disk, not in memory."""
        texts = "SELECT DISTINCT printf('%d%.*c', x, 300000, 'a') AS t FROM n LIMIT 1000"
        sql = f"WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT sum(length(t)) FROM ({texts})"
        code = f"""if 1:
            import re
            from pathlib import Path
            from otel_rollout.cli.main import main
            assert main(["query", {sql!r}]) == 0
            print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert int(done.stdout.split()[-1]) < 250_000

    def test_closed_streams(self, folder):
        """Without standard streams nothing is printed, and nothing fails."""
        command = f"{sys.executable} -m otel_rollout"
        for shell in (
            f"ls {folder} >&-",
            f"query 'SELECT 1' {folder} --json >&- 2>&- <&-",
            f"export {folder} --help >&-",
        ):
            done = subprocess.run(["sh", "-c", f"{command} {shell}"], capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, "")
        for odd in (f"query - {folder} <&-", f"query {folder} <&-", f"query 'SELECT \udcff' {folder}"):
            done = subprocess.run(["sh", "-c", f"{command} {odd}"], capture_output=True, text=True, check=False)
            assert (done.returncode, "Traceback" in done.stderr) == (2, False)

    def test_time(self, folder, capsys):
        """A question that takes longer than the limit ends with a message; the next one is answered."""
        assert "more than 0.2 s" in refused(capsys, ENDLESS, "--timeout", "0.2")
        assert ask(capsys, "SELECT count(*) AS number FROM trajectories") == [{"number": 4}]

    @pytest.mark.parametrize(
        "sql",
        [
            "DELETE FROM trajectories",
            "DROP TABLE trajectories",
            "PRAGMA journal_mode = DELETE",
            "ATTACH 'other.db' AS other",
            "CREATE TABLE own (x)",
            "SELECT 1; SELECT 2",
        ],
    )
    def test_only_one_question_that_reads(self, folder, capsys, sql):
        """Nothing is written, and a question is one statement."""
        assert "a question is one SELECT" in refused(capsys, sql)
        assert ask(capsys, "SELECT count(*) AS number FROM trajectories") == [{"number": 4}]

    @pytest.mark.parametrize(
        ("sql", "said"),
        [
            ("SELECT rewrd FROM trajectories", "there is no column rewrd; did you mean reward?"),
            ("SELECT t.turn FROM trajectories t", "have it; did you mean turns?"),
            (
                "SELECT sample_index FROM messages",
                "sample_index in what it asks: trajectories, groups have it (JOIN trajectories USING (trace_id))",
            ),
            ("SELECT * FROM trajectory", "there is no table trajectory; did you mean trajectories?"),
            ("SELECT medain(reward) FROM trajectories", "there is no function medain; did you mean median"),
            ("SELECT foo FROM steps", "there is no column foo; steps has step, validate, experiment_name,"),
            ("SELECT tool_nam FROM spans", "there is no column tool_nam; did you mean tool"),
            ("SELECT 'a' REGEXP '('", "'(' is no pattern: missing )"),
            ("SELECT quantile(reward, 99) FROM trajectories", "that of quantile from 0 to 1"),
            ("SELECT FROM", "syntax error"),
            ('SELECT "rewrd" FROM trajectories', "there is no column rewrd; did you mean reward?"),
            ('SELECT 1 FROM trajectories WHERE name = "it\'s" -- "x"', "a text has single quotes: 'it''s'"),
            ("SELECT percentile(reward, 200) FROM trajectories", "percentile's second one is from 0 to 100"),
            ("SELECT percentile(reward, -1) FROM trajectories", "percentile's second one is from 0 to 100"),
            ("nowhere", "there is no trace folder nowhere"),
        ],
    )
    def test_message_names_what_was_meant(self, folder, capsys, sql, said):
        """A misspelt name is told with the one that is near."""
        assert said in refused(capsys, sql)

    def test_nothing_asked(self, folder, capsys, monkeypatch):
        """An empty question is an error that shows one."""
        monkeypatch.setattr(sys, "stdin", io.StringIO(""))
        assert "there is no question" in refused(capsys)


class TestPrompt:
    """The prompt on a terminal."""

    def test_questions_until_the_end(self, folder, capsys, monkeypatch, tmp_path):
        """Each question is answered, an error is told, and the prompt goes on until its end."""
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
        lines = iter(
            [
                "SELECT count(*) AS number",
                "FROM trajectories;",
                "SELECT rewrd FROM trajectories;",
                ".tables",
                ".schema steps",
                ";",
                ".help;",
                ".halp",
                "quit;",
            ]
        )
        monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
        assert main(["query"]) == 0
        shown = capsys.readouterr()
        assert "number\n     4\n" in shown.out
        assert "groups" in shown.out
        assert re.search(r"steps +reward_mean +real +- +the mean of `reward`", shown.out)
        assert "did you mean reward?" in shown.err
        assert shown.err.splitlines()[1:] == ["there is no .halp; .help lists what there is"]
        assert "the end, as Ctrl-D is" in shown.out

    def test_ctrl_c_ends_a_question(self, folder):
        """Ctrl-C is no limit of time."""
        run = Run([folder])
        killer = Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        killer.start()
        with pytest.raises(KeyboardInterrupt):
            run.query(ENDLESS, max_rows=1, seconds=60)
        killer.join()
