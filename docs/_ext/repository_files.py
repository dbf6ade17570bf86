"""Pages for files outside of docs/ that pages link to, so that each link works on the site, too.

Before each build, ``docs/files`` is filled with a page per linked file. Markdown is copied with redirected links, and
other files are included as code. Links to directories lead to their README.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from sphinx.application import Sphinx

_LINK = re.compile(r"\]\(((?!\w+:|#)[^)#\s]+)((?:#[^)\s]*)?)\)")
_FILES = "files"
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".sh": "bash"}


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("builder-inited", _write_pages)
    app.connect("source-read", _redirect_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def write_changed(pages: dict[Path, str], folder: Path, pattern: str) -> None:
    """Write pages whose text has changed, and delete the files in a folder that match a pattern and are no pages."""
    for path in set(folder.rglob(pattern)) - set(pages):
        path.unlink()
    for path, text in pages.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def _write_pages(app: Sphinx) -> None:
    docs = Path(app.srcdir)
    waiting = [docs / path for path in sorted(app.project.discover()) if not path.startswith(f"{_FILES}/")]
    waiting = [path.with_name(f"{path.name}.md") for path in waiting]
    pages: dict[Path, str] = {}
    while waiting:
        file = waiting.pop()
        for match in _LINK.finditer(file.read_text()) if file.suffix == ".md" and file.exists() else ():
            target = _target(file, match[1])
            page = _page_of(target, docs)
            if page.is_relative_to(docs / _FILES) and page not in pages and target.exists():
                pages[page] = _page_text(target, page, docs)
                waiting.append(target)
    index = docs / _FILES / "index.md"
    names = sorted(str(page.relative_to(index.parent).with_suffix("")) for page in pages)
    pages[index] = "# Linked files\n\n```{toctree}\n:maxdepth: 1\n\n" + "\n".join(names) + "\n```\n"
    write_changed(pages, index.parent, "*.md")


def _page_text(file: Path, page: Path, docs: Path) -> str:
    if file.is_dir():
        names = "".join(f"- `{path.name}`\n" for path in sorted(file.iterdir()) if not path.name.startswith(("_", ".")))
        return f"# {file.relative_to(docs.parent)}\n\n{names}"
    if file.suffix == ".md":
        return _redirect(file.read_text(), file, page, docs)
    language = _LANGUAGES.get(file.suffix, "text")
    path = os.path.relpath(file, page.parent)
    return f"# {file.relative_to(docs.parent)}\n\n```{{literalinclude}} {path}\n:language: {language}\n```\n"


def _redirect_page(app: Sphinx, page: str, content: list[str]) -> None:
    file = Path(app.env.doc2path(page))
    docs = Path(app.srcdir)
    if file.suffix == ".md" and not file.is_relative_to(docs / _FILES):
        content[0] = _redirect(content[0], file, file, docs)


def _redirect(text: str, file: Path, page: Path, docs: Path) -> str:
    """Return the text of a file with links that work on a page at another place."""

    def redirect(match: re.Match[str]) -> str:
        target = _page_of(_target(file, match[1]), docs)
        return f"]({os.path.relpath(target, page.parent)}{match[2]})"

    return _LINK.sub(redirect, text)


def _target(file: Path, link: str) -> Path:
    """Return the file that a link leads to."""
    target = Path(os.path.normpath(file.parent / link))
    candidates = (target / "README.md", target / "__init__.py")
    return next((path for path in candidates if path.exists()), target)


def _page_of(file: Path, docs: Path) -> Path:
    """Return the page of a file."""
    special = {docs.parent / "README.md": docs / "index.md", docs / "adr": docs / "decisions.md"}
    if file in special:
        return special[file]
    if file.is_relative_to(docs) or not file.is_relative_to(docs.parent):
        return file
    path = file.relative_to(docs.parent)
    return docs / _FILES / (path if path.suffix == ".md" else path.with_name(f"{path.name}.md"))
