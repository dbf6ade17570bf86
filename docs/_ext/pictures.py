"""Pictures that pages describe in text: ``{sequence}`` draws messages between lanes, ``{strip}`` rows of batches.

They become SVG inside of the page, 360 units wide, so that they use the colours of the theme and are
legible on a phone. ``det.css`` has their styles.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from html import escape
from itertools import count
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from sphinx.application import Sphinx

_WIDTH = 360
_LETTER = 6.5
"""Width of an average letter of a wide font at size 12."""
_LINE = 15


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("sequence", _Sequence)
    app.add_directive("strip", _Strip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class _Picture(Directive):
    has_content = True
    option_spec: ClassVar = {"alt": directives.unchanged_required}
    draw: ClassVar[Callable[[list[str]], tuple[str, float]]]

    def run(self) -> list[nodes.Node]:
        svg = picture(type(self).draw, list(self.content), self.options["alt"])
        return [nodes.raw("", svg, format="html")]


def picture(draw: Callable[[list[str]], tuple[str, float]], lines: list[str], alt: str) -> str:
    """Return the SVG of a picture.

    Args:
        draw: function that returns the shapes and the height.
        lines: text that describes the picture.
        alt: what the picture shows, for those who cannot see it.
    """
    shapes, height = draw([line.strip() for line in lines if line.strip()])
    box = f'viewBox="0 0 {_WIDTH} {height:.0f}"'
    return f'<svg class="picture" {box} role="img" aria-label="{escape(alt)}">{shapes}</svg>'


def draw_sequence(lines: list[str]) -> tuple[str, float]:
    """Draw ``a | b | c`` as lanes, ``a -> b: text`` as an arrow, ``a: text`` as a note, ``--- text`` as a section."""
    names = [name.strip() for name in lines[0].split("|")]
    step = _WIDTH / len(names)
    lanes = {name: step * (index + 0.5) for index, name in enumerate(names)}
    shapes, top = [], 34.0
    for line in lines[1:]:
        if line.startswith("---"):
            shapes.append(f'<line x1="0" x2="{_WIDTH}" y1="{top + 8}" y2="{top + 8}"/>')
            shapes.append(f'<rect class="paper" x="0" y="{top + 9}" width="{_WIDTH}" height="{_LINE}"/>')
            shapes.append(f'<text class="left strong" x="2" y="{top + 22}">{escape(line[3:].strip())}</text>')
            top += 30
            continue
        place, text = line.split(": ", 1)
        begin, _, end = place.partition(" -> ")
        middle = (lanes[begin] + lanes[end or begin]) / 2
        label, bottom = _text(text, middle, top + (0 if end else 3), "paper" if end else "box")
        shapes.append(label)
        if end:
            shapes.append(_arrow(lanes[begin], lanes[end], bottom + 6))
        top = bottom + (18 if end else 12)
    back = "".join(
        f'<line class="lane" x1="{x}" x2="{x}" y1="22" y2="{top}"/>'
        f'<rect class="box" x="{x - step / 2 + 3}" y="1" width="{step - 6}" height="21" rx="4"/>'
        f'<text class="strong" x="{x}" y="16">{escape(name)}</text>'
        for name, x in lanes.items()
    )
    return back + "".join(shapes), top


def draw_strip(lines: list[str]) -> tuple[str, float]:
    """Draw ``name: 1 2 3* 4 x`` as a row of batches: ``*`` has a checkpoint, ``x`` is a kill, ``.`` is nothing."""
    rows = [(name, cells.split()) for name, cells in (line.split(": ", 1) for line in lines)]
    size = _WIDTH / max(len(cells) for _, cells in rows)
    shapes = []
    for number, (name, cells) in enumerate(rows):
        top = number * 56
        shapes.append(f'<text class="left" x="2" y="{top + 14}">{escape(name)}</text>')
        for left, cell in zip(count(0, size), cells, strict=False):
            if cell not in ("x", "."):
                kind = "saved" if cell.endswith("*") else "box"
                shapes.append(
                    f'<rect class="{kind}" x="{left + 2}" y="{top + 21}" width="{size - 4}" height="24" rx="3"/>'
                )
            if cell != ".":
                style, text = ("lost", "✕") if cell == "x" else ("", cell.rstrip("*"))
                shapes.append(f'<text class="{style}" x="{left + size / 2}" y="{top + 38}">{text}</text>')
    return "".join(shapes), len(rows) * 56


def _text(text: str, middle: float, top: float, background: str) -> tuple[str, float]:
    """Return text on a background, near ``middle`` but inside of the picture, and its lower end."""
    lines = textwrap.wrap(text, int(_WIDTH / _LETTER) - 2)
    width = max(map(len, lines)) * _LETTER + 8
    left = min(max(middle - width / 2, 1), _WIDTH - width - 1)
    shapes = (
        f'<rect class="{background}" x="{left}" y="{top}" width="{width}" height="{len(lines) * _LINE + 2}" rx="3"/>'
    )
    for number, line in enumerate(lines):
        shapes += f'<text x="{left + width / 2}" y="{top + 12 + number * _LINE}">{escape(line)}</text>'
    return shapes, top + len(lines) * _LINE + 2


def _arrow(begin: float, end: float, y: float) -> str:
    back = -6 if end > begin else 6
    head = f"{end},{y} {end + back},{y - 4} {end + back},{y + 4}"
    return (
        f'<line class="arrow" x1="{begin}" x2="{end + back}" y1="{y}" y2="{y}"/><polygon class="head" points="{head}"/>'
    )


class _Sequence(_Picture):
    draw = staticmethod(draw_sequence)


class _Strip(_Picture):
    draw = staticmethod(draw_strip)
