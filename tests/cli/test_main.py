"""The command line: help, version, and usage errors."""

import itertools
import os
import re
import signal
import subprocess
import sys

import pytest

from otel_rollout import __version__
from otel_rollout.cli import main as command_line
from otel_rollout.cli.main import main

COMMANDS = ["", *command_line.COMMANDS]


def help_of(capsys, command):
    """Return what `--help` prints."""
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


class TestMain:
    """What stands before a command."""

    def test_prints_help_without_arguments(self, capsys):
        """Whoever types the bare name learns what there is, and nothing has gone wrong."""
        assert main([]) == 0
        shown = capsys.readouterr().out
        assert "usage: otel-rollout" in shown
        assert "demo" in shown
        assert "130" in shown

    @pytest.mark.parametrize("command", COMMANDS)
    def test_help_fits_80_columns(self, capsys, monkeypatch, command):
        """No line of any help is broken by a terminal of the usual width, and no word within it."""
        monkeypatch.setenv("COLUMNS", "80")
        lines = help_of(capsys, command).splitlines()
        assert lines[0].startswith("usage: otel-rollout")
        assert [line for line in lines if len(line) > 80 or line.endswith("-")] == []

    @pytest.mark.parametrize("command", [command for command in COMMANDS if command])
    def test_help_has_the_exit_codes(self, capsys, command):
        """Every command says what its exit codes mean, in the same words."""
        _, _, codes = help_of(capsys, command).partition("exit codes:\n")
        meanings = {line[:5].strip(): line[7:] for line in codes.splitlines()}
        assert {"0", "2", "130", "141"} <= set(meanings) <= {"0", "1", "2", "130", "141"}
        assert meanings["2"] == "the command line, the folder, a setting or an extra needs a change"

    @pytest.mark.parametrize("command", COMMANDS)
    def test_each_argument_is_explained(self, capsys, monkeypatch, command):
        """Every argument and option has its line; where a folder stands, files and their default are named alike."""
        monkeypatch.setenv("COLUMNS", "200")
        shown = help_of(capsys, command).partition("exit codes:")[0]
        assert re.findall(r"^  (?:-\S+|[A-Z|]+)(?: [A-Z]\S*)?$\n(?!   )", shown, re.MULTILINE) == []
        for line in re.findall(r"^  (?:DIR|A) +(.*)$", shown, re.MULTILINE):
            assert "(default: OTEL_ROLLOUT_DIR, else rollout-traces)" in line
            if command in ("ls", "show", "stats", "diagnose", "compare", "query", "view"):
                assert re.search(r"files? of OTLP JSON", line)

    @pytest.mark.parametrize("command", ["ls", "show", "stats", "diagnose", "view", "top", "replay"])
    def test_what_reads_a_folder_takes_an_experiment_and_a_run(self, capsys, monkeypatch, command):
        """The options are the same, and are explained by the same words; so are steps."""
        monkeypatch.setenv("COLUMNS", "200")
        shown = " ".join(help_of(capsys, command).split())
        assert "--experiment NAME an experiment" in shown
        assert "--run ID a run, by its run_id; the beginning will do" in shown
        if "--step" in shown:
            assert "--step N a training step: 7, or 1,4,7, or 3..9, or 100..; or none" in shown

    def test_prints_the_version(self, capsys):
        """`--version` is the distribution's."""
        with pytest.raises(SystemExit) as ended:
            main(["--version"])
        assert ended.value.code == 0
        assert capsys.readouterr().out == f"otel-rollout {__version__}\n"

    @pytest.mark.parametrize(
        "arguments",
        [
            ["no-such-command"],
            ["demo", "--no-such-option"],
            ["demo", "--steps", "0"],
            ["demo", "--samples", "many"],
            ["demo", "--rollouts", "-1"],
            ["demo", "--concurrency", "0"],
            ["demo", "--timeout", "nan"],
            ["demo", "--timeout", "0"],
        ],
    )
    def test_a_wrong_command_line_is_a_usage_error(self, capsys, arguments):
        """The exit code is 2 and the message names what is wrong."""
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
        assert arguments[-1] in capsys.readouterr().err or "--timeout" in arguments

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["demo", "--timeout", "abc"], "argument --timeout: 'abc' is not a number of seconds"),
            (["doctor", "--timeout", "abc"], "argument --timeout: 'abc' is not a number of seconds"),
            (["replay", "--patience", "0"], "argument --patience: '0' is not a number of seconds"),
            (["demo", "--steps", "many"], "argument --steps: 'many' is not a positive whole number"),
        ],
    )
    def test_a_value_that_is_no_number_is_said_in_words(self, capsys, arguments, said):
        """What is said of a wrong value is for its reader: no name of a function is in it."""
        with pytest.raises(SystemExit):
            main(arguments)
        assert said in capsys.readouterr().err

    @pytest.mark.parametrize(
        "line",
        [
            *("ls", "show", "stats", "diagnose", "top", "compare X", "view --export OUT"),
            *("replay --backend console", "export --to parquet OUT"),
        ],
    )
    def test_a_folder_that_is_not_there(self, tmp_path, monkeypatch, capsys, line):
        """A wrong path is an error on one line that names it, and nothing is made."""
        monkeypatch.chdir(tmp_path)
        command, *options = line.split()
        assert main([command, "X", *options]) == 2
        shown = capsys.readouterr()
        assert "there is no trace folder X" in shown.err
        assert (shown.out, list(tmp_path.iterdir())) == ("", [])

    @pytest.mark.parametrize("command", ["ls", "show", "replay"])
    def test_what_excludes_each_other_is_a_usage_error(self, capsys, command):
        """Validation only and no validation together are told, and not one of them is taken."""
        with pytest.raises(SystemExit) as ended:
            main([command, "--validate", "--train"])
        assert ended.value.code == 2
        assert "--train: not allowed with argument --validate" in capsys.readouterr().err

    @pytest.mark.parametrize(
        "line",
        [
            "compare A B --json --step 3",
            "query SQL A B --csv --limit 2",
            "export A B --to parquet P",
            "import A B --into C",
            "view A B --port 1 --no-browser",
            "top A B --once",
            "ls A --step 1 --json",
            "show A --trace ab --chat",
            "diagnose A --against B --json",
            "replay A --reward -1..0 --backend otlp",
        ],
    )
    def test_options_and_folders_in_any_order(self, line):
        """The same is meant wherever the options of a command are between its folders."""
        command, *words = line.split()
        places = [at for at, word in enumerate(words) if word.startswith("--")]
        first = words[: places[0]]
        options = [words[at:end] for at, end in itertools.pairwise([*places, len(words)])]
        mixed = [first[0], *itertools.chain(*options), *first[1:]]
        last = [*itertools.chain(*options[::-1]), *first]
        for other in (mixed, last):
            assert command_line.parse([command, *other]) == command_line.parse([command, *words])

    def test_an_output_without_unicode(self):
        """Where an output has no letter for a character it shows a mark, and is no error."""
        done = subprocess.run(
            [sys.executable, "-m", "otel_rollout.cli", "doctor", "--help"],
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert "mlflow, weave, otlp, ?" in done.stdout

    def test_help_needs_no_extra(self):
        """Help comes without the packages of extras, and without OpenTelemetry's SDK: it is there at once."""
        probe = (
            "import sys; from otel_rollout.cli.main import main; code = main([]);"
            "heavy = {'rich', 'tokenizers', 'mlflow', 'grpc', 'opentelemetry', 'orjson'} & set(sys.modules);"
            "sys.exit(code or (f'imported {heavy}' if heavy else 0))"
        )
        done = subprocess.run([sys.executable, "-c", probe], check=False, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, "")

    @pytest.mark.parametrize("command", [command for command in COMMANDS if command])
    def test_a_commands_help_needs_no_extra(self, command):
        """The help of each command comes without the packages of extras."""
        probe = (
            "import sys; from otel_rollout.cli.main import main\n"
            "extras = ('rich', 'tokenizers', 'mlflow', 'grpc', 'uvicorn', 'starlette', 'zstandard', 'pandas')\n"
            "sys.modules.update(dict.fromkeys(extras))\n"
            f"main(['{command}', '--help'])\n"
        )
        done = subprocess.run([sys.executable, "-c", probe], check=False, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, "")

    def test_a_wrong_option_shows_the_usage_of_its_command(self, capsys):
        """What the command takes is said, not what commands there are."""
        with pytest.raises(SystemExit):
            main(["demo", "--nope"])
        shown = capsys.readouterr().err
        assert shown.startswith("usage: otel-rollout demo ")
        assert "unrecognized arguments: --nope" in shown

    def test_runs_as_a_module(self):
        """`python -m otel_rollout` is the command."""
        command = [sys.executable, "-m", "otel_rollout", "--version"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stdout) == (0, f"otel-rollout {__version__}\n")

    def test_ctrl_c_while_it_starts_prints_no_traceback(self):
        """Before the command line has taken over, an interrupt ends the process as a signal does."""
        program = (
            "import builtins, os, signal, sys\n"
            "from otel_rollout_command import main\n"
            "taken = builtins.__import__\n"
            "def interrupted(name, *arguments):\n"
            "    if name == 'otel_rollout.cli.main':\n"
            "        os.kill(os.getpid(), signal.SIGINT)\n"
            "    return taken(name, *arguments)\n"
            "builtins.__import__ = interrupted\n"
            "main()\n"
        )
        done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
