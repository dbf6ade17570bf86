"""The build script for Horovod, without a build."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from det_horovod import build

FRAMEWORKS = {"torch": "2.13.0+cpu", "tensorflow": "2.15.1"}


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("HOROVOD_", "CXXFLAGS"))]:
        monkeypatch.delenv(name)


def pack(directory: Path, *, with_old: bool = True) -> None:
    """Create a source archive of Horovod in the directory, whose patched files have the texts to replace, or not."""
    source = directory / "horovod-0.28.1"
    for name, old, _ in build.PATCHES:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(f"before\n{old}\nafter" if with_old else "something else")
    with tarfile.open(f"{source}.tar.gz", "w:gz") as archive:
        archive.add(source, source.name)
    shutil.rmtree(source)


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Commands that the script would run. Instead, the download creates a source archive and the build a wheel."""
    seen: list[Any] = []

    def run(command: list[str], **options: Any) -> None:
        seen.append((command[1:], options))
        for option in command:
            if option.startswith("--dest="):
                pack(Path(option.partition("=")[2]))
            if option.startswith("--wheel-dir="):
                Path(option.partition("=")[2], "horovod-0.28.1-cp311-cp311-linux_x86_64.whl").touch()

    monkeypatch.setattr(build, "_run_command", run)
    monkeypatch.setattr(build, "framework_versions", lambda: FRAMEWORKS)
    monkeypatch.setattr(shutil, "which", lambda tool, path: tool)
    return seen


def test_horovod_is_built_once_and_then_installed_from_the_wheel(commands: list[Any], tmp_path: Path) -> None:
    assert build.main(["--wheels", str(tmp_path)]) == 0
    _, (downloading, _), (building, options), (installing, _), *tries = commands
    assert {"download", "--no-binary=horovod", "--no-build-isolation", "horovod==0.28.1"} <= set(downloading)
    assert {"wheel", "--no-cache-dir", "--no-build-isolation"} <= set(building)
    assert building[-1].endswith("/horovod-0.28.1")
    wanted = {"HOROVOD_WITH_PYTORCH": "1", "HOROVOD_WITH_TENSORFLOW": "1", "HOROVOD_WITH_GLOO": "1"}
    assert wanted.items() <= options["env"].items()
    (wheel,) = tmp_path.glob("*/*.whl")
    assert installing[-1] == str(wheel)
    assert [program.split()[1] for (_, program), _ in tries] == ["horovod.torch", "horovod.tensorflow"]

    commands.clear()
    assert build.main(["--wheels", str(tmp_path)]) == 0
    assert commands[0][0][1:] == ["pip", "install", "--no-deps", "--force-reinstall", str(wheel)]
    assert len(commands) == 3


def test_the_directory_of_a_wheel_depends_on_versions_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {
        build.wheel_key(FRAMEWORKS),
        build.wheel_key({"torch": "2.13.0+cpu"}),
        build.wheel_key({**FRAMEWORKS, "torch": "2.14.0"}),
    }
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "NCCL")
    keys.add(build.wheel_key(FRAMEWORKS))
    monkeypatch.setenv("CXXFLAGS", "-O0")
    keys.add(build.wheel_key(FRAMEWORKS))
    assert len(keys) == 5
    assert all(f"horovod-0.28.1-{sys.implementation.cache_tag}-torch-2.1" in key for key in keys)


def test_the_directory_of_a_wheel_depends_on_the_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    key = build.wheel_key(FRAMEWORKS)
    monkeypatch.setattr(build, "PATCHES", ())
    assert build.wheel_key(FRAMEWORKS) != key


def test_the_source_is_patched(tmp_path: Path) -> None:
    pack(tmp_path)
    source = build.unpack_source(tmp_path)
    for name, _, new in build.PATCHES:
        assert (source / name).read_text() == f"before\n{new}\nafter"


def test_a_source_that_the_patches_do_not_fit_is_an_error(tmp_path: Path) -> None:
    pack(tmp_path, with_old=False)
    with pytest.raises(build.BuildError, match=r"gloo_context\.cc of horovod-0\.28\.1\.tar\.gz has .* 0 times"):
        build.unpack_source(tmp_path)


def test_frameworks_are_the_installed_ones(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert build.framework_versions()["torch"] == importlib.metadata.version("torch")
    monkeypatch.setattr(importlib.metadata, "packages_distributions", dict)
    assert build.main([]) == 1
    assert "neither PyTorch nor TensorFlow is installed" in capsys.readouterr().err


def test_missing_tools_are_named(
    commands: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool, path: None if tool != "make" else tool)
    assert build.main(["--wheels", str(tmp_path)]) == 1
    assert "missing tools: cmake, g++; " in capsys.readouterr().err
    assert not commands


def test_the_wrapper_selects_the_newer_standard_and_the_users_flags(tmp_path: Path) -> None:
    wrapper = tmp_path / "g++"
    wrapper.write_text(build._COMPILER % "echo")
    wrapper.chmod(0o755)
    arguments = ["-std=c++14", "-std=gnu++14", "-std=c++11", "-DNAME=a b", "x-std=c++14.cc"]
    flags = {**os.environ, "CXXFLAGS": "-O0 -march=native"}
    printed = subprocess.run([str(wrapper), *arguments], capture_output=True, text=True, check=True, env=flags).stdout
    assert printed == "-std=c++20 -std=c++20 -std=c++11 -DNAME=a b x-std=c++14.cc -g0 -O0 -march=native\n"


def test_errors_of_commands_have_the_last_lines_and_the_path_of_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = "print('[ 52%] Building'); print('[ 53%] Building'); print('no such header'); raise SystemExit(3)"
    with pytest.raises(build.BuildError, match=r"(?s)no such header.*failed with 3.*build\.log"):
        build._run_command([sys.executable, "-c", program], limit=60, log=tmp_path / "build.log")
    assert (tmp_path / "build.log").read_text().count("\n") == 3
    assert capsys.readouterr().err == "det_horovod.build: 52 %\n"


def test_a_command_that_takes_too_long_is_killed() -> None:
    with pytest.raises(build.BuildError, match="within 1 s"):
        build._run_command([sys.executable, "-c", "import time; time.sleep(60)"], limit=1)
