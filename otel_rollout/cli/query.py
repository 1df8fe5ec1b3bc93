"""`otel-rollout query`: ask a trace folder a question in SQL."""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

import orjson

from otel_rollout.catalog import SQL_COLUMNS, Answer, QueryError, Run
from otel_rollout.catalog.query import MAX_ANSWER_BYTES
from otel_rollout.catalog.span_columns import OF_SPANS
from otel_rollout.cli.messages import complain
from otel_rollout.cli.options import (
    READ,
    add_attempt,
    add_run,
    add_seconds,
    add_steps,
    default_folder,
    exit_codes,
    positive,
)
from otel_rollout.cli.reading import (
    ProblemLog,
    complain_of_redaction,
    print_json,
    redacted_in,
    require_reader,
    show_progress,
)
from otel_rollout.dataframes.frames import require_arrow
from otel_rollout.errors import ConfigurationError
from otel_rollout.text.near_miss import did_you_mean
from otel_rollout.text.plain_text import counted, printable
from otel_rollout.text.sanitize import replace_surrogates

MAX_ROWS: Final = 10_000
_NARROWEST: Final = 12
_PROMPT: Final = "query> "
_MORE: Final = "  ...> "
_HELP: Final = f"""\
A question is one SELECT; it ends with ; or an empty line. The tables are
{", ".join(SQL_COLUMNS)}.
.tables          the tables with the number of their rows, but those of spans
.schema [TABLE]  the columns of a table, or of all, with type and meaning
.help            this
.quit            the end, as Ctrl-D is"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the description and the options of the command."""
    parser.description = """\
Ask trace folders a question in SQL (SQLite's). The tables are trajectories,
rewards, tools, steps, groups, spans, messages and conversations;
--schema prints their columns. SQLite's functions are there, and mean(x),
median(x), p50(x) to p99(x), quantile(x, 0.99), percentile(x, 99), stddev(x),
corr(x, y), counts(x), and x REGEXP 'pattern'. Without a question there is, on a
terminal, a prompt with a history; in a pipe, the question is standard input.
The question and the folders come in any order. It only reads.

examples:
  otel-rollout query --schema spans
  otel-rollout query "SELECT step, reward_mean, solved FROM steps"
  otel-rollout query "SELECT trace_id, reward FROM trajectories" --csv DIR
"""
    parser.epilog = exit_codes("answered")
    parser.add_argument(
        "sql", metavar="SQL", nargs="?", default="", help="the question: one SELECT; - reads it from stdin"
    )
    parser.add_argument(
        "folders",
        metavar="DIR",
        nargs="*",
        default=[],
        help=f"{READ}; several are asked together (default: OTEL_ROLLOUT_DIR, else rollout-traces)",
    )
    add_steps(parser)
    add_run(parser)
    add_attempt(parser)
    parser.add_argument(
        "--limit",
        type=positive,
        default=MAX_ROWS,
        metavar="N",
        help="the most rows of the answer (default: %(default)s)",
    )
    add_seconds(
        parser, "--timeout", "the time that an answer may take, after reading the folder (default: %(default)g)"
    )
    parser.add_argument(
        "--schema",
        nargs="?",
        const="",
        metavar="TABLE",
        help="print the columns of a table, or of all, with type, unit and meaning, and end",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="a JSON object for each row")
    form.add_argument("--csv", action="store_true", help="comma-separated values, with a header")
    form.add_argument("--parquet", metavar="FILE", type=Path, help="write the rows to a Parquet file")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    if not (arguments.json or arguments.csv or arguments.parquet):
        require_reader()
    if arguments.schema is not None:
        _print(arguments, _schema_of("" if os.path.isdir(arguments.schema) else arguments.schema))  # noqa: PTH112
        return 0
    given = [each for each in (arguments.sql, *arguments.folders) if each]
    questions = [each for each in given if _is_question(each)]
    if len(questions) > 1:
        raise ConfigurationError(f"there are two questions: {questions[0]} and {questions[1]}")
    sql = "".join(questions)
    folders = [Path(each) for each in given if each not in questions]
    problems = ProblemLog()
    recorded = Run(
        folders or [default_folder()],
        problems.note,
        show_progress,
        experiment=arguments.experiment,
        run=arguments.run,
        attempt=arguments.attempt,
    )
    recorded.require_folders()
    if not sql and sys.stdin.isatty():
        _Prompt(recorded, arguments).run()
    else:
        sql = sys.stdin.read() if sql in ("", "-") else sql
        if not sql.strip():
            raise ConfigurationError('there is no question: otel-rollout query "SELECT step, reward_mean FROM steps"')
        _ask(recorded, arguments, sql)
    problems.note_attempts(recorded, arguments)
    problems.print()
    return 0


def _is_question(text: str) -> bool:
    """Return True if it is no folder: a question has a space, or is `VALUES(1)`."""
    return text == "-" or ((len(text.split()) > 1 or "(" in text) and not os.path.lexists(text))


def _schema_of(table: str) -> Answer:
    """Return the columns of a table, or of all.

    Raises:
        ConfigurationError: There is no such table.
    """
    if table and table not in SQL_COLUMNS:
        raise ConfigurationError(
            f"there is no table {table}{did_you_mean(table, SQL_COLUMNS)}; there are {', '.join(SQL_COLUMNS)}"
        )
    rows = [
        (name, each.name, each.type_words, each.unit or None, each.meaning)
        for name in ([table] if table else SQL_COLUMNS)
        for each in SQL_COLUMNS[name]
    ]
    return Answer(("table", "column", "type", "unit", "meaning"), rows, False)


def _ask(recorded: Run, arguments: argparse.Namespace, sql: str) -> None:
    answer = recorded.query(
        replace_surrogates(sql.strip().rstrip(";")),
        arguments.step,
        max_rows=arguments.limit,
        seconds=arguments.timeout,
        has_regexp=True,
    )
    _print(arguments, answer)
    for name, column in answer.read_as.items():
        complain(f"{name} is read as {column}")
    if answer.is_cut and len(answer.rows) < arguments.limit:
        complain(
            f"there are more rows than {MAX_ANSWER_BYTES >> 20} MiB hold: name fewer columns, or cut texts by substr"
        )
    elif answer.is_cut:
        complain(f"there are more than {arguments.limit:,} rows; --limit N prints more")
    if arguments.json or arguments.csv or arguments.parquet:
        values = (each for row in answer.rows for each in zip(answer.columns, row, strict=True))
        complain_of_redaction(redacted_in(values))
    if answer.unreadable:
        complain(f"the spans of {counted(len(answer.unreadable), 'trajectory')} can't be read")


def _print(arguments: argparse.Namespace, answer: Answer) -> None:
    if arguments.json:
        names = _distinct(answer.columns)
        for row in answer.rows:
            print_json(orjson.dumps(dict(zip(names, row, strict=True)), default=repr))
    elif arguments.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows(answer.rows)
    elif arguments.parquet:
        _write_parquet(answer, arguments.parquet)
    else:
        _print_table(answer)


def _write_parquet(answer: Answer, path: Path) -> None:
    require_arrow()
    import pyarrow.parquet as pq

    from otel_rollout.dataframes.arrow import table_of_answer
    from otel_rollout.dataframes.destination import replaced

    with replaced(path, path.with_name(f".{path.name}.new")) as file:
        pq.write_table(table_of_answer(_distinct(answer.columns), answer.rows), file, compression="zstd")


def _distinct(names: Sequence[str]) -> Sequence[str]:
    """Return names with a number after each that was there before: the columns of a JOIN can have one name."""
    found: dict[str, None] = {}
    for name in names:
        further = (f"{name}_{number}" for number in count(2))
        found[name if name not in found else next(each for each in further if each not in (*found, *names))] = None
    return list(found)


def _print_table(answer: Answer) -> None:
    from otel_rollout.look.terminal.screen import open_screen
    from otel_rollout.look.terminal.table import Column, Table, print_lines

    columns = []
    for at, name in enumerate(answer.columns):
        is_text = any(isinstance(row[at], str) for row in answer.rows)
        columns.append(Column(printable(name), is_text=is_text, narrowest=_NARROWEST if is_text else 0))
    table = Table(columns)
    for row in answer.rows:
        table.add_row(*map(_cell, row))
    print_lines(open_screen(), table)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else printable(str(value))


class _Prompt:
    """Asks for questions until the input ends."""

    def __init__(self, recorded: Run, arguments: argparse.Namespace) -> None:
        self._recorded = recorded
        self._arguments = arguments

    def run(self) -> None:
        """Answer questions."""
        history = _open_history()
        print("SQL over the tables of the catalog; .help tells more, Ctrl-D ends it.")
        try:
            while (question := _read_question()) is not None:
                self._try(question)
        finally:
            if history is not None:
                history()

    def _try(self, question: str) -> None:
        try:
            self._answer(question)
        except (QueryError, ConfigurationError) as error:
            complain(str(error))
        except KeyboardInterrupt:
            print()

    def _answer(self, question: str) -> None:
        word, _, rest = question.rstrip("; ").partition(" ")
        if not word:
            return
        if word == ".help":
            print(_HELP)
        elif word == ".tables":
            rows = [
                f"SELECT '{table}' AS name, count(*) AS rows FROM {table}"
                for table in SQL_COLUMNS
                if table not in OF_SPANS
            ]
            _ask(self._recorded, self._arguments, " UNION ALL ".join(rows))
        elif word == ".schema":
            _print(self._arguments, _schema_of(rest.strip()))
        elif word.startswith("."):
            raise QueryError(f"there is no {word}; .help lists what there is")
        else:
            _ask(self._recorded, self._arguments, question)


def _read_question() -> str | None:
    """Return the next question; None at the end."""
    lines: list[str] = []
    while True:
        try:
            line = input(_MORE if lines else _PROMPT)
        except EOFError:
            print()
            return None
        except KeyboardInterrupt:
            print()
            lines.clear()
            continue
        if not lines and line.strip(" ;") in (".quit", ".exit", "quit", "exit"):
            return None
        lines.append(line)
        question = "\n".join(lines).strip()
        if question and (question.startswith(".") or question.endswith(";") or not line.strip()):
            return question
        if not question:
            lines.clear()


def _open_history() -> Any:
    """Read the history of questions, and return what writes it; None where lines can't be edited."""
    try:
        import readline
    except ImportError:
        return None
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    path = Path(state).expanduser() / "otel-rollout" / "query_history"
    with suppress(OSError):
        readline.read_history_file(path)

    def write() -> None:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(path)

    return write
