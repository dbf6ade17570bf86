"""Take the pictures of det at work that the pages of the documentation show.

usage: screenshots.py [DIRECTORY]

The experiments of docs/start.md run in a terminal, in an empty directory. DIRECTORY gets an SVG of each display. Its
default is docs/_static/screenshots. det-torch and the extras cli and plot must be installed.
"""

from __future__ import annotations

import codecs
import fcntl
import io
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]

_COLUMNS, _LINES = 76, 24
_CONTROL = re.compile(r"\x1b\[([\d;?]*)([A-Za-z])|\r|\n")
_SVG = """<svg viewBox="0 0 {terminal_width} {terminal_height}" xmlns="http://www.w3.org/2000/svg">
<style>
text {{ font: {char_height}px ui-monospace, Menlo, Consolas, monospace; white-space: pre }}
{styles}
</style>
<defs>{lines}</defs>
<rect fill="#0c0c0c" rx="8" width="{terminal_width}" height="{terminal_height}"/>
<g transform="translate(9, 9)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


class Screen:
    """Lines of a terminal, with their colours. It knows the control sequences that det uses."""

    def __init__(self) -> None:
        self.lines = [""]
        self._row = 0

    def write(self, text: str) -> None:
        """Change the lines as a terminal does."""
        place = 0
        for match in _CONTROL.finditer(text):
            self.lines[self._row] += text[place : match.start()]
            place = match.end()
            self._control(match)
        self.lines[self._row] += text[place:]

    def plain(self) -> str:
        """Return the text without colours."""
        return Text.from_ansi("\n".join(self.lines)).plain

    def _control(self, match: re.Match[str]) -> None:
        if match[2] == "m":
            self.lines[self._row] += match[0]
        elif match[2] == "K":
            self.lines[self._row] = ""
        elif match[2] == "A":
            self._row = max(0, self._row - int(match[1] or 1))
        elif match[0] == "\n":
            self._row += 1
            self.lines += [""] * (self._row == len(self.lines))


def run_in_terminal(command: str, directory: Path, environment: dict[str, str]) -> Iterator[str]:
    """Run a command in a terminal, and yield what it writes, with whole control sequences.

    Raises:
        CalledProcessError: the command failed.
    """
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
    process = subprocess.Popen(
        shlex.split(command), cwd=directory, env=environment, stdin=inside, stdout=inside, stderr=inside
    )
    os.close(inside)
    decoder, rest = codecs.getincrementaldecoder("utf-8")(), ""
    try:
        while written := os.read(terminal, 1 << 16):
            text, escape, begun = (rest + decoder.decode(written)).rpartition("\x1b")
            complete = not escape or re.match(r"\[[\d;?]*[A-Za-z]", begun)
            yield text + escape + begun if complete else text
            rest = "" if complete else escape + begun
    except OSError:  # all processes have closed the terminal
        pass
    finally:
        os.close(terminal)
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, command)


def picture_of(command: str, written: Iterator[str], is_wanted: Callable[[str], object]) -> str:
    """Return the SVG of the last screen whose text is wanted, below the command.

    Raises:
        ValueError: there was no such screen.
    """
    screen, wanted = Screen(), ""
    for text in written:
        screen.write(text)
        if is_wanted(screen.plain()):
            wanted = "\n".join(screen.lines).rstrip()
    if not wanted:
        raise ValueError(f"{command} showed no such screen:\n{screen.plain()}")
    shown = Text.from_ansi(f"\x1b[1m$ {command}\x1b[0m\n{wanted}\n\n")  # the last line is the margin
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(shown)
    return console.export_svg(code_format=_SVG, unique_id="det")


def take_pictures(directory: Path) -> None:
    """Run the experiments, and write the pictures."""
    sys.path.insert(0, str(ROOT))
    from plugins.testing.tests.document_parts import write_named_files

    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        write_named_files(ROOT / "docs" / "start.md", work)
        environment = {
            **{key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TERM": "xterm-256color",
            "DET_HOME": str(work / "home"),
            "DET_SLOTS_DIR": str(work / "slots"),
        }
        subprocess.run([sys.executable, "make_data.py"], cwd=work, env=environment, check=True)
        for name, command, pattern in (
            ("run", "det run const.yaml", r" [4-8]\d\d/1000 .* best "),
            ("search", "det run search.yaml", r"(?s)running.*completed.*best .*\ntrial .*\n\d.*\n\d"),
        ):
            written = run_in_terminal(command, work, environment)
            svg = picture_of(command, written, re.compile(pattern).search)
            (directory / f"{name}.svg").write_text(svg, encoding="utf-8")
        plot = ["det", "experiment", "plot", "2", "--metric", "validation_error", "-o", str(directory / "plot.svg")]
        subprocess.run(plot, cwd=work, env=environment, check=True)


def main(arguments: list[str]) -> int:
    """Take the pictures, and return the exit code."""
    directory = Path(arguments[0]) if arguments else ROOT / "docs" / "_static" / "screenshots"
    directory.mkdir(parents=True, exist_ok=True)
    take_pictures(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
