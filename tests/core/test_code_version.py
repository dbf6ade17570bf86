"""Commits of git repositories."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from det_core.core import code_version
from det_core.core.code_version import read_code_version
from det_core.interfaces.records import CodeVersion


def git(tree: Path, *words: str) -> str:
    options = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tree.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *options, *words], cwd=tree, check=True, capture_output=True, env=environment)
    return done.stdout.decode().strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a working tree with a commit."""
    directory = tmp_path / "tree"
    (directory / "code").mkdir(parents=True)
    git(directory, "init", "-q")
    (directory / "code" / "model.py").write_text("one\n")
    git(directory, "add", ".")
    git(directory, "commit", "-q", "-m", "first")
    return directory


def test_a_directory_has_the_commit_of_its_repository(tree: Path) -> None:
    git(tree, "remote", "add", "other", "file:///elsewhere")
    git(tree, "remote", "add", "origin", "https://ann:secret@example.org:8443/digits.git?token=secret")
    expected = CodeVersion(
        commit=git(tree, "rev-parse", "HEAD"),
        branch="main",
        is_changed=False,
        remote="https://example.org:8443/digits.git",
    )
    assert read_code_version(tree / "code") == expected
    (tree / "code" / "new.py").write_text("not tracked\n")
    assert read_code_version(tree) == expected
    git(tree, "pack-refs", "--all")
    assert read_code_version(tree) == expected
    (tree / "code" / "model.py").write_text("two\n")
    changed = read_code_version(tree)
    assert changed
    assert (changed.is_changed, changed.commit) == (True, expected.commit)
    git(tree, "add", ".")
    assert read_code_version(tree) == changed


def test_other_working_trees_and_tags(tree: Path) -> None:
    commit = git(tree, "rev-parse", "HEAD")
    git(tree, "worktree", "add", "-q", "-b", "feature/a", "../second")
    second = read_code_version(tree.parent / "second" / "code")
    assert second == CodeVersion(commit=commit, branch="feature/a", is_changed=False)
    git(tree, "checkout", "-q", "--detach")
    assert read_code_version(tree) == CodeVersion(commit=commit, is_changed=False)
    for words in (("tag", "v1"), ("tag", "-d", "v1"), ("tag", "-a", "release/2", "-m", "two"), ("pack-refs", "--all")):
        git(tree, *words)
        found = read_code_version(tree)
        assert found
        assert found.tag == ("" if "-d" in words else git(tree, "describe", "--tags", "--exact-match"))


@pytest.mark.parametrize("what", ["core.fsmonitor", "core.sshCommand", "filter.a.clean", "core.pager", "alias.status"])
def test_no_program_of_a_repository_is_run(tree: Path, what: str) -> None:
    """Its config and hooks may be those of strangers. The time of the file makes git read it, and thus filter it."""
    (tree / ".gitattributes").write_text("*.py filter=a\n")
    git(tree, "add", ".")
    git(tree, "commit", "-q", "-m", "second")
    trap, mark = tree.parent / "trap", tree.parent / "mark"
    trap.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    trap.chmod(0o700)
    git(tree, "config", what, str(trap))
    for hook in ("post-index-change", "reference-transaction", "fsmonitor-watchman"):
        (tree / ".git" / "hooks" / hook).write_bytes(trap.read_bytes())
        (tree / ".git" / "hooks" / hook).chmod(0o700)
    os.utime(tree / "code" / "model.py", (1, 1))
    found = read_code_version(tree)
    assert found
    assert found.is_changed is False
    assert not mark.exists()


def test_without_git_and_time_changes_are_unknown(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = read_code_version(tree)
    assert known
    programs = tree.parent / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    for script in (None, "#!/bin/sh\nexit 3\n", "#!/bin/sh\nexec /bin/sleep 60\n"):
        monkeypatch.setattr(code_version, "_GIT_SECONDS", 0.2)
        if script:
            (programs / "git").write_text(script)
            (programs / "git").chmod(0o700)
        assert read_code_version(tree) == CodeVersion(commit=known.commit, branch="main")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("HEAD", "ref: refs/heads/../../../outside"),
        ("HEAD", "not a commit"),
        ("HEAD", "ref: refs/heads/unborn"),
        ("commondir", "\0"),
        ("refs/heads/main", "a" * 39),
        ("refs/heads/main", None),
    ],
)
def test_a_malformed_repository_is_none(tree: Path, name: str, content: str | None) -> None:
    (tree.parent / "outside").write_text(git(tree, "rev-parse", "HEAD"))
    path = tree / ".git" / name
    path.unlink(missing_ok=True)
    if content is None:
        os.mkfifo(path)
    else:
        path.write_text(content)
    assert read_code_version(tree) is None


def test_a_directory_without_repository_has_no_commit(tmp_path: Path) -> None:
    assert read_code_version(tmp_path) is None
    (tmp_path / ".git").write_text("gitdir: /proc/self/nothing\n")
    assert read_code_version(tmp_path) is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("git@example.org:team/digits.git", "example.org:team/digits.git"),
        ("ssh://git@example.org/digits", "ssh://example.org/digits"),
        ("https://token@example.org/digits#x", "https://example.org/digits"),
        ("https://ann:pa/ss@example.org/digits", ""),
        ("https://ann:pa?ss@example.org/digits", ""),
        ("https://ann:se@cret@example.org/digits", "https://example.org/digits"),
        ("https://ann:pa://ss@example.org/digits", ""),
        ('"https://ann:secret@example.org/digits"', "https://example.org/digits"),
        ("/srv/git/digits", "/srv/git/digits"),
        ("../digits", "../digits"),
    ],
)
def test_urls_are_recorded_without_secrets(tree: Path, url: str, shown: str) -> None:
    (tree / ".git" / "config").write_text(f'[core]\n\turl = /not/this\n[remote "origin"]\n\turl = {url}\n')
    found = read_code_version(tree)
    assert found
    assert found.remote == shown


def test_a_program_of_the_repository_is_not_run(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tree / "git"
    program.write_text("#!/bin/sh\ntouch ran\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    assert read_code_version(tree)
    assert not [*tree.rglob("ran")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("commondir", "a" * 4000),
        ("commondir", "a\0b"),
        ("config", "\n" * (1 << 18)),
        ("config", '[remote "origin"]\nurl =\nfetch = x\n'),
    ],
)
def test_odd_files_of_a_repository_take_no_time_and_stop_nothing(tree: Path, name: str, content: str) -> None:
    (tree / ".git" / name).write_text(content)
    found = read_code_version(tree)
    assert found is None or not found.remote


def test_a_loop_in_a_repository_stops_nothing(tree: Path) -> None:
    (tree / ".git" / "index").unlink()
    (tree / ".git" / "index").symlink_to("index")
    assert read_code_version(tree) is None


def test_a_repository_of_another_user_is_none(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = (tree / ".git").stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert (read_code_version(tree) is None) == bool(owner)


def test_large_tags_are_not_read(tree: Path) -> None:
    git(tree, "checkout", "-q", "--detach")
    for number in range(300):
        with (tree / ".git" / "refs" / "tags" / str(number)).open("wb") as file:
            file.truncate(16 << 20)
    begin = time.process_time()
    assert read_code_version(tree)
    assert time.process_time() - begin < 5
