"""Commit of the git repository that a directory belongs to.

No config of the repository takes effect, because its hooks, filters and monitors are programs that strangers may have
written. Its files are read here. Git itself is asked only whether tracked files differ from the commit, with a git
directory of its own.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

from det_core.interfaces.records import CodeVersion
from det_core.scratch import scratch_directory

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PACKED = re.compile(r"^([0-9a-f]{40,64}) (refs/[^\n]+)\n(?:\^([0-9a-f]{40,64})$)?", re.MULTILINE)
"""Line of the file ``packed-refs``, and the commit that an annotated tag is for."""
_TAGGED = re.compile(rb"tag \d+\0object ([0-9a-f]{40,64})\n")
_REMOTE = re.compile(
    r'^[ \t]*\[[ \t]*remote[ \t]+"([^"\n]*)"[ \t]*\]|^[ \t]*url[ \t]*=[ \t]*(\S+)|^[ \t]*(\[)',
    re.MULTILINE | re.IGNORECASE,
)
_BRANCHES, _TAGS = "refs/heads/", "refs/tags/"
_LARGEST = 16 << 20
"""Maximum number of bytes of a list of refs or a config that are read."""
_LARGEST_REF = 4 << 10
"""The same of a file with a commit or a path, and of a tag."""
_MOST_TAGS = 10_000
"""Maximum number of tags outside of ``packed-refs`` that are compared."""
_LONGEST = 1000
"""Maximum number of characters of a name and a URL."""
_GIT_SECONDS = 5.0
"""Seconds for which git may look for changes."""
_STATUS = ("status", "--porcelain", "--no-renames", "--untracked-files=no", "--ignore-submodules=all")


def read_code_version(directory: Path) -> CodeVersion | None:
    """Return the commit of the repository that contains a directory, or None if there is none that can be read.

    Repositories of other users are none, as for git, except for root. Submodules and files that git does not track are
    no changes.
    """
    try:
        return _read_version(directory)
    except (OSError, ValueError, RuntimeError):  # no permission, or a path that is too long, has a NUL or is a loop
        return None


def _read_version(directory: Path) -> CodeVersion | None:
    found = next(filter(None, map(_repository_at, (directory.resolve(), *directory.resolve().parents))), None)
    if found is None or not (commit := found.commit):
        return None
    return CodeVersion(
        commit=commit,
        branch=_printable(found.branch),
        tag="" if found.branch else _printable(next(found.tags_of(commit), "")),
        is_changed=_is_changed(found, commit),
        remote=_printable(_without_user(found.remote)),
    )


@dataclass(frozen=True)
class _Repository:
    """Repository of git, whose files may be missing, malformed or no plain files.

    Args:
        tree: its working tree.
        own: the git directory of this working tree.
        common: the git directory of all its working trees.
    """

    tree: Path
    own: Path
    common: Path

    @cached_property
    def head(self) -> str:
        return _read(self.own / "HEAD").strip()

    @property
    def branch(self) -> str:
        """The branch that is checked out, or ""."""
        name = self.head.removeprefix(f"ref: {_BRANCHES}")
        return name if name != self.head and ".." not in name else ""

    @property
    def commit(self) -> str:
        """The commit that is checked out, or ""."""
        name = _BRANCHES + self.branch
        loose = _read(self.common / name).strip() if self.branch else self.head
        found = loose or next((commit for commit, known, _ in self._packed if known == name), "")
        return found if _COMMIT.fullmatch(found) else ""

    def tags_of(self, commit: str) -> Iterator[str]:
        """Yield the tags of a commit."""
        for path in islice((self.common / _TAGS).rglob("*"), _MOST_TAGS):
            if commit in (target := _read(path).strip(), self._tagged(target)):
                yield str(path.relative_to(self.common / _TAGS))
        for target, name, tagged in self._packed:
            if commit in (target, tagged) and name.startswith(_TAGS):
                yield name.removeprefix(_TAGS)

    @property
    def remote(self) -> str:
        """The URL of the remote ``origin``, or of the first one, or ""."""
        urls: dict[str, str] = {}
        section = None
        for name, url, other in _REMOTE.findall(_read(self.common / "config", _LARGEST)):
            if url and section is not None:
                urls.setdefault(section, url)
            elif not url:
                section = None if other else name
        return urls.get("origin", next(iter(urls.values()), ""))

    @cached_property
    def _packed(self) -> list[tuple[str, str, str]]:
        return _PACKED.findall(_read(self.common / "packed-refs", _LARGEST))

    def _tagged(self, target: str) -> str:
        """Return the commit that an annotated tag is for, or "" if it is none, or is packed."""
        if not _COMMIT.fullmatch(target):
            return ""
        packed = _read_bytes(self.common / "objects" / target[:2] / target[2:], _LARGEST_REF)
        with suppress(zlib.error):
            if found := _TAGGED.match(zlib.decompressobj().decompress(packed, _LARGEST_REF)):
                return found[1].decode()
        return ""


def _repository_at(tree: Path) -> _Repository | None:
    """Return the repository whose working tree begins at a directory, or None."""
    own = tree / ".git"
    with suppress(FileNotFoundError):
        if os.getuid() and own.stat().st_uid not in (0, os.getuid()):
            return None
    if link := _read(own).removeprefix("gitdir:").strip():  # of a submodule, or a further working tree
        own = tree / link
    if not (own / "HEAD").is_file():
        return None
    return _Repository(tree, own, own / (_read(own / "commondir").strip() or "."))


def _read(path: Path, most: int = _LARGEST_REF) -> str:
    """Return the beginning of a text file, or "" if there is none."""
    return _read_bytes(path, most).decode(errors="replace")


def _read_bytes(path: Path, most: int) -> bytes:
    with suppress(OSError, ValueError), open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # and not a pipe, or a device without end
            return file.read(most)
    return b""


def _is_changed(repository: _Repository, commit: str) -> bool | None:
    """Return whether tracked files differ from the commit, or None if git cannot say so in time."""
    with scratch_directory("git") as directory:
        (directory / "refs").mkdir()
        (directory / "objects").symlink_to((repository.common / "objects").resolve())
        (directory / "HEAD").write_text(commit, encoding="ascii")
        (directory / "config").write_text(_CONFIGS[len(commit)], encoding="ascii")
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(directory),
            "GIT_DIR": str(directory),
            "GIT_WORK_TREE": str(repository.tree),
            "GIT_INDEX_FILE": str((repository.own / "index").resolve()),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_LAZY_FETCH": "1",
        }
        try:
            done = subprocess.run(
                ["git", *_STATUS],
                cwd=directory,  # where a relative entry of PATH finds no program of the repository
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_GIT_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
    return None if done.returncode else bool(done.stdout)


_CONFIGS = {
    40: "[core]\nrepositoryformatversion = 0\n",
    64: "[core]\nrepositoryformatversion = 1\n[extensions]\nobjectformat = sha256\n",
}
"""Configs of git, by the number of digits of its commits."""


def _without_user(url: str) -> str:
    """Return a URL, or ``host:path``, without the user, password, query and fragment. "" if they cannot be told."""
    before, is_url, after = url.strip('"').partition("://")
    scheme, rest = (before + is_url, after) if is_url else ("", before)
    place = re.split("[/?#]", rest, maxsplit=1)[0]
    path = rest[len(place) :]
    if "@" in path:
        return ""
    return scheme + place.rpartition("@")[2] + re.split("[?#]", path, maxsplit=1)[0]


def _printable(text: str) -> str:
    return "".join(filter(str.isprintable, text[:_LONGEST]))
