"""Execution of the code blocks of a page, in order, in one directory.

- A block whose first line is a comment with a file name, such as ``# model_def.py``, is written to that file.
- Other Python blocks are executed in one namespace.
- Other YAML blocks are experiment configs, or blocks of one, and must be valid.
- Bash blocks are executed, and fail with the first command that fails. ``pip`` does nothing.
- TOML and JSON must parse. Blocks of text and without a language are output, pictures and lists of commands.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import references
import yaml

from det_core.config import load_config

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NOT_RUN = ("", "text")
"""Languages of blocks that are not executed. The commands in blocks without a language are parsed."""
LANGUAGES = (*NOT_RUN, "python", "yaml", "bash", "toml", "json")
_COMPLETE = {
    "entrypoint": "model_def:Trial",
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
}
_SHELL = 'set -euo pipefail; pip() { echo "pip $*"; }\n'
_FENCE = re.compile(r"^(```+|~~~+) *([^\n]*)\n(.*?)^\1 *$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """Code block of a page."""

    language: str
    code: str

    @property
    def file(self) -> str | None:
        """Name in the first line of the file that the block is."""
        match = re.match(r"# ([\w./-]+\.\w+)(?: .*)?\n", self.code)
        return match[1] if match else None


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page that are written by hand, without directives such as ``{toctree}``."""
    written, _, _ = page.read_text().partition(references.MARK)
    found = _FENCE.findall(written)
    return [Block(language.strip(), code) for _, language, code in found if not language.startswith("{")]


def run_page(page: Path, directory: Path, *, timeout: float = 240) -> None:
    """Run all blocks of a page, with ``directory`` as the working directory.

    Args:
        page: the page.
        directory: directory in which files are written, which is the working directory of this process.
        timeout: number of seconds that each Bash block may take.
    """
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks_of(page):
        if block.language in NOT_RUN:
            continue
        if block.file:
            path = directory / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code)
        if block.language == "bash":
            run_shell(block.code, directory, timeout)
        elif block.language == "yaml":
            check_config(block, directory)
        elif block.language == "python" and not block.file:
            exec(compile(block.code, str(page), "exec", dont_inherit=True), names)
        elif block.language == "toml":
            tomllib.loads(block.code)
        elif block.language == "json":
            json.loads(block.code)


def run_shell(code: str, directory: Path, timeout: float) -> str:
    """Run commands, which find ``det`` and ``python`` of this environment, and return what they print."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", _SHELL + code],
        cwd=directory, env=environment, timeout=timeout, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, f"{code}\n{done.stdout}"
    return done.stdout


def check_config(block: Block, directory: Path) -> None:
    """Check an experiment config, or a part of one, which default values complete."""
    values = yaml.safe_load(block.code)
    searcher = {**_COMPLETE["searcher"], **values.get("searcher", {})} if isinstance(values, dict) else {}
    path = directory / "part-of-a-page.yaml"
    path.write_text(yaml.safe_dump({**_COMPLETE, **values, "searcher": searcher}))
    assert load_config(path)
    path.unlink()
