"""Build and release all distributions together, with one version.

usage: release.py set VERSION | check [TAG] | build DIRECTORY

``set`` writes the version everywhere, dates the changelogs, and adapts the ranges in which the distributions require
each other. ``check`` prints what does not fit together, and exits with 1 if there is something. For a TAG, the release
must be complete. ``build`` writes a wheel and an sdist of each distribution, which are the same bytes for the same
commit. All commands work on the repository in the current directory.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path

NO_CHANGES = "- No changes. All distributions are released together."
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_NAME = re.compile(r'^name = "([^"]+)"$', re.MULTILINE)
_VERSION_FILE = re.compile(r'^\[tool\.hatch\.version\]\npath = "([^"]+)"$', re.MULTILINE)
_ASSIGNED_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_REQUIREMENT = re.compile(r"\b(det-[a-z0-9-]+)((?:\[[^]]*\])?)([<>=!~][0-9.,<>=!~]*)")
_HEADING = re.compile(r"^## (.+?)(?: \((\d{4}-\d\d-\d\d)\))?$", re.MULTILINE)


@dataclass(frozen=True)
class Distribution:
    """Directory with a ``pyproject.toml`` and a ``CHANGELOG.md``."""

    directory: Path

    @property
    def project(self) -> Path:
        """File with the metadata."""
        return self.directory / "pyproject.toml"

    @property
    def changelog(self) -> Path:
        """File whose first section is the next or the newest release."""
        return self.directory / "CHANGELOG.md"

    @cached_property
    def name(self) -> str:
        """Name of the distribution."""
        return _first(_NAME, self.project)

    @cached_property
    def version_file(self) -> Path:
        """File that assigns ``__version__``."""
        return self.directory / _first(_VERSION_FILE, self.project)

    @property
    def version(self) -> str:
        """Version in the code."""
        return _first(_ASSIGNED_VERSION, self.version_file)


def distributions() -> list[Distribution]:
    """Return all distributions of the repository, det-core first."""
    projects = ["pyproject.toml", *sorted(map(str, Path().glob("plugins/*/pyproject.toml")))]
    return [Distribution(Path(project).parent) for project in projects]


def compatible_range(version: str) -> str:
    """Return the range of releases that a distribution of this version requires of the others (docs/contract.md)."""
    major, minor = map(int, version.split(".")[:2])
    return f">={major}.{minor},<{f'0.{minor + 1}' if major == 0 else major + 1}"


def set_version(version: str, date: str) -> None:
    """Write the version and the date of a release, and what follows from them, into all files.

    Raises:
        ValueError: it is not a final release, or older than the current version.
    """
    found = distributions()
    newest = max((each.version for each in found), key=_parts)
    if not _VERSION.fullmatch(version) or _parts(version) < _parts(newest):
        raise ValueError(f"expected VERSION as X.Y.Z and not below {newest}, got {version!r}")
    names = {each.name for each in found}
    for each in found:
        _rewrite(each.version_file, _ASSIGNED_VERSION, f'__version__ = "{version}"')
        each.changelog.write_text(_dated(each.changelog.read_text(encoding="utf-8"), version, date), encoding="utf-8")

    def adapt_range(match: re.Match[str]) -> str:
        return f"{match[1]}{match[2]}{compatible_range(version)}" if match[1] in names else match[0]

    for pattern in ("pyproject.toml", "plugins/*/pyproject.toml", "examples/*/pyproject.toml", "docs/**/*.md"):
        for file in Path().glob(pattern):
            file.write_text(_REQUIREMENT.sub(adapt_range, file.read_text(encoding="utf-8")), encoding="utf-8")


def find_problems(tag: str | None = None) -> Iterator[str]:
    """Yield what does not fit together, as ``file: problem``.

    Args:
        tag: name of the tag that shall be released. None if a release is still being prepared.
    """
    found = distributions()
    names, version = {each.name for each in found}, found[0].version
    if tag not in (None, f"v{version}"):
        yield f"{found[0].version_file}: the version is {version}, but the tag is {tag}; expected v{version}"
    for each in found:
        text = each.project.read_text(encoding="utf-8")
        if each.version != version:
            yield f"{each.version_file}: the version is {each.version}, expected {version} as {found[0].name}"
        for name, extras, versions in _REQUIREMENT.findall(text):
            if name in names and versions != compatible_range(version):
                yield f"{each.project}: {name}{extras}{versions}: expected the range {compatible_range(version)}"
        if tag:
            newest, date = _HEADING.findall(each.changelog.read_text(encoding="utf-8"))[0]
            if (newest, bool(date)) != (version, True):
                yield f"{each.changelog}: the first section is {newest!r}, expected '{version} (DATE)'"
            if "\n[project.urls]\n" not in text:
                yield f"{each.project}: [project.urls] is missing; expected the public address of the repository"


def build(directory: Path) -> None:
    """Build a wheel and an sdist of each distribution. The wheel is built from the contents of the sdist.

    Raises:
        CalledProcessError: a build failed.
    """
    environment = {**os.environ, "SOURCE_DATE_EPOCH": source_date()}
    for each in distributions():
        command: list[str | Path] = [
            sys.executable,
            "-m",
            "build",
            "-q",
            "--no-isolation",
            "--outdir",
            directory,
            each.directory,
        ]
        subprocess.run(command, env=environment, check=True)


def source_date() -> str:
    """Return the time of the newest commit in seconds, which archives give to all their files."""
    command = ["git", "log", "-1", "--format=%ct"]
    return subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout.strip()


def _first(pattern: re.Pattern[str], file: Path) -> str:
    match = pattern.search(file.read_text(encoding="utf-8"))
    if match is None:
        raise ValueError(f"{file}: expected a match of {pattern.pattern!r}, found none")
    return match[1]


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _rewrite(file: Path, pattern: re.Pattern[str], text: str) -> None:
    file.write_text(pattern.sub(text, file.read_text(encoding="utf-8"), count=1), encoding="utf-8")


def _dated(changelog: str, version: str, date: str) -> str:
    """Return a changelog whose undated first section is the release. A new section says so if there are no changes."""
    heading = _HEADING.search(changelog)
    if heading is None:
        raise ValueError(f"expected a section such as '## {version}' in a changelog, found {changelog[:50]!r}")
    section = f"## {version} ({date})"
    if heading[2]:
        section += f"\n\n{NO_CHANGES}\n\n{heading[0]}"
    return changelog[: heading.start()] + section + changelog[heading.end() :]


def main(arguments: Sequence[str]) -> int:
    """Run a command, and return the exit code."""
    match arguments:
        case ["set", version]:
            try:
                set_version(version, datetime.now(timezone.utc).date().isoformat())
            except ValueError as error:
                print(error, file=sys.stderr)
                return 1
            print(f"Set {version}. Review the changes, commit them, and push the tag v{version}.")
        case ["check"] | ["check", _]:
            problems = list(find_problems(*arguments[1:]))
            print("\n".join([*problems, f"{len(distributions())} distributions: {len(problems)} problems"]))
            return bool(problems)
        case ["build", directory]:
            build(Path(directory))
        case _:
            print((__doc__ or "").splitlines()[2], file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
