"""Scratch directories, including those of killed processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from det_core import scratch
from det_core.scratch import keep_directory, scratch_directory


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory for temporary files, which this process has not swept yet."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def names(parent: Path) -> set[str]:
    return {path.name for path in parent.iterdir()}


def test_a_scratch_directory_is_private_and_empty_and_is_removed(parent: Path) -> None:
    with scratch_directory("context") as directory:
        assert list(directory.iterdir()) == []
        (top,) = parent.iterdir()
        assert top.name.startswith("det-context-")
        assert top.stat().st_mode & 0o077 == 0
        (directory / "read-only").mkdir(mode=0o500)
    assert not names(parent)


def test_a_scratch_directory_that_a_cleaner_removed_is_no_error(parent: Path) -> None:
    """A cleaner of temporary files may remove the directory of a running agent."""
    with scratch_directory("agent") as directory:
        directory.rmdir()
    assert not names(parent)


def test_a_cleaner_that_respects_locks_keeps_the_scratch_directory(parent: Path) -> None:
    """systemd-tmpfiles skips directories that it cannot lock."""
    with scratch_directory("agent") as directory:
        assert subprocess.run(["flock", "--nonblock", directory.parent, "true"]).returncode == 1


@pytest.mark.integration
def test_the_next_process_removes_directories_of_a_killed_one(parent: Path) -> None:
    code = """if True:
        import time
        from det_core.scratch import scratch_directory
        with scratch_directory("node"):
            print(1, flush=True)
            time.sleep(600)
    """
    env = {**os.environ, "TMPDIR": str(parent)}
    processes = [subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE) for _ in range(2)]
    killed, living = processes
    try:
        for process in processes:
            assert process.stdout
            with process.stdout:
                process.stdout.readline()
        for name in (f"det-{os.getuid()}", "det-context-of-an-older-release", "det-node-", "det-data-mine"):
            (parent / name).mkdir()
        (parent / "det-node-link").symlink_to("det-data-mine")
        before = names(parent)
        assert len(before) == 7
        killed.kill()
        assert killed.wait(100) == -signal.SIGKILL
        with scratch_directory("other"):
            assert len(before - names(parent)) == 1
    finally:
        for process in processes:
            process.kill()
            process.wait(100)
    scratch._sweep_abandoned.cache_clear()
    with scratch_directory("other"):
        pass
    assert len(before - names(parent)) == 2
    assert living.returncode == -signal.SIGKILL


def test_a_kept_directory_is_not_removed_later(parent: Path) -> None:
    with scratch_directory("tensorboard") as directory:
        (directory / "events").touch()
        keep_directory(directory)
    scratch._sweep_abandoned.cache_clear()
    with scratch_directory("other"):
        pass
    assert [path.name for path in directory.iterdir()] == ["events"]
