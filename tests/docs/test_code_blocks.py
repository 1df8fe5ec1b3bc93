"""Each block of code in the documentation is one that can be pasted."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.code_blocks import CodeBlock, code_blocks
from tests.docs.page_run import Result, Step, run, steps
from tests.docs.pages import BLOCKS, PAGES, ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHELLS = [shell for shell in ("sh", "bash", "dash", "zsh") if shutil.which(shell)]


class TestBlocks:
    """Each block, whether it is run or not."""

    @pytest.mark.parametrize("name", BLOCKS)
    def test_each_block_has_a_language_and_parses(self, name: str):
        """A block is Python, commands, data that parses, or plain text; one that is not run says why."""
        for block in BLOCKS[name]:
            where = f"{name}:{block.line}"
            assert block.comments.get("not run", "a reason"), where
            if block.language == "python":
                compile(block.text, where, "exec", flags=0x2000)  # with `await` outside of a function
            elif block.language == "yaml":
                assert yaml.safe_load(block.text), where
            elif block.language == "toml":
                assert tomllib.loads(block.text), where
            elif block.language == "json":
                assert json.loads(block.text), where
            else:
                assert block.language in ("", "text", "sh", "sql"), where
                assert block.language != "sql" or "not run" in block.comments, where

    @pytest.mark.parametrize("name", BLOCKS)
    def test_what_another_test_runs_is_run_there(self, name: str):
        """`tested in` names a file of tests that reads the page."""
        for block in BLOCKS[name]:
            if path := block.comments.get("tested in"):
                assert Path(name).name in (ROOT / path).read_text(encoding="utf-8"), path

    @pytest.mark.parametrize("shell", SHELLS)
    @pytest.mark.parametrize("name", BLOCKS)
    def test_each_shell_can_parse_the_commands(self, name: str, shell: str):
        """A block of commands is valid in sh, bash and zsh."""
        for block in commands(name):
            checked = subprocess.run([shell, "-n"], input=block.text, capture_output=True, text=True, check=False)

            assert (checked.returncode, checked.stderr) == (0, ""), f"{name}:{block.line}"

    @pytest.mark.parametrize("name", BLOCKS)
    def test_commands_can_be_pasted(self, name: str):
        """Commands have no prompt, and nothing that an interactive zsh reads otherwise: `# …`, `!`, bare `?` or `[`."""
        for block in commands(name):
            unquoted = re.sub(r"'[^']*'", "''", block.text)

            assert not re.search(r"^\s*[$>%#] |\s#|!", unquoted, re.MULTILINE), f"{name}:{block.line}"
            assert not re.search(r"[][?]", re.sub(r'"[^"]*"', "", unquoted)), f"{name}:{block.line}"

    def test_each_page_has_trace_folders_of_its_own(self):
        """Who follows two pages in one clone doesn't find the trajectories of the first in the second."""
        folders: dict[str, str] = {}
        for name, blocks in BLOCKS.items():
            code = "".join(step.text for step in steps(blocks))
            named = {*re.findall(r"OTEL_ROLLOUT_DIR=(\S+)", code)}
            assert named or not re.search(r'demo --backend file|backend="file"', code), name
            for folder in named:
                assert folders.setdefault(folder, name) == name

    def test_extras_exist(self):
        """Each extra that a page installs is one of ours."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
        named = re.findall(r"(?:otel-rollout|'\.)\[([a-z, ]+)\]", text)

        assert {extra.strip() for extras in named for extra in extras.split(",")} <= {*project["optional-dependencies"]}

    def test_targets_exist(self):
        """Each `make` target that a page names is in the Makefile."""
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
        lines = "".join(block.text for name in BLOCKS for block in commands(name))
        named = {*re.findall(r"`make ([a-z-]+)", text), *re.findall(r"^make ([a-z-]+)", lines, re.MULTILINE)}

        assert named <= {*targets}


class TestSteps:
    """How a page is run."""

    def test_a_command_that_fails_before_the_last_one_is_noticed(self, tmp_path: Path):
        """Each command that fails counts, also in the middle of a block."""
        todo = [Step("true\nsh -c 'exit 3'\necho one\n", 1), Step("echo two\nsh -c 'exit 2'\n", 4, exit_code=2)]

        assert run(todo, tmp_path, {}) == [Result(0, [3], "one\n"), Result(2, [2], "two\n")]

    def test_only_a_block_right_after_commands_is_their_output(self, tmp_path: Path):
        """A text block after other text is not compared."""
        page = tmp_path / "page.md"
        page.write_text("```sh\na\n```\n\n```text\nA\n```\n\n```sh\nb\n```\nProse.\n```text\nB\n```\n")

        assert steps(code_blocks(page)) == [Step("a\n", 1, ["A"]), Step("b\n", 9)]


def commands(name: str) -> list[CodeBlock]:
    """Return a page's blocks of commands."""
    return [block for block in BLOCKS[name] if block.language == "sh"]
