"""Build Horovod for the installed frameworks, and install it, with ``python -m det_horovod.build``.

Horovod has no wheels, and its newest release does not compile unchanged against current PyTorch, whose headers need a
newer C++ standard than Horovod requests. A wrapper around the compiler selects that standard. `PATCHES` fixes errors in
Horovod's source. The wheel is kept, and rebuilt only for other patches or other versions of the libraries that it was
compiled against.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import platformdirs
import psutil

VERSION = "0.28.1"
FRAMEWORKS = {"torch": "PYTORCH", "tensorflow": "TENSORFLOW"}
"""Module -> name of the framework in Horovod's build settings."""
PATCHES = (
    # Without this, a process set listens at the address to which the host's own name resolves, often loopback.
    (
        "horovod/common/gloo/gloo_context.cc",
        "assert(global_context.IsEnabled());",
        "assert(global_context.IsEnabled());\n  gloo_iface_ = global_context.gloo_iface_;",
    ),
    # Gloo would be compiled once more for TensorFlow, with another standard, which makes no difference to its callers.
    ("horovod/tensorflow/CMakeLists.txt", "set(Tensorflow_CXX17 TRUE)", "set(Tensorflow_CXX17 FALSE)"),
)
"""Files in Horovod's source, each with a text that occurs once in it and its replacement."""

_SETTINGS = {"HOROVOD_WITH_GLOO": "1", "HOROVOD_WITHOUT_MPI": "1", "HOROVOD_WITHOUT_MXNET": "1"}
_TOOLS = ("cmake", "make", "g++")
_BACKEND = ("setuptools>=70.1", "packaging")
"""Packages that build the wheel. They are not installed in this environment, which may need other versions."""
_COMPILER = """#!/bin/bash
set -- "${@/#-std=c++14/-std=c++20}"
exec %s "${@/#-std=gnu++14/-std=c++20}" -g0 $CXXFLAGS
"""
"""Wrapper around the compiler. It also turns off debug symbols, which would take two fifths of the time, and lets the
user's flags come last."""
_COMPILER_MEMORY = 2 << 30
_PERCENT = re.compile(r"\[ *(\d+)%\]")
_BUILD_TIMEOUT = 3600.0
_INSTALL_TIMEOUT = 300.0
_LAST_LINES = 30


class BuildError(Exception):
    """Error about a missing requirement or a failed command, with advice."""


def main(argv: Sequence[str]) -> int:
    """Install Horovod, which is built if necessary, and return the exit code."""
    parser = argparse.ArgumentParser("python -m det_horovod.build", description="Build and install Horovod.")
    kept = platformdirs.user_cache_path("det") / "wheels"
    parser.add_argument("--wheels", type=Path, default=kept, metavar="DIR", help=f"where to keep wheels ({kept})")
    try:
        install_horovod(parser.parse_args(argv).wheels.absolute())
    except BuildError as error:
        _say(error)
        return 1
    return 0


def install_horovod(wheels: Path) -> None:
    """Install Horovod in this environment.

    Args:
        wheels: the directory that keeps wheels. Horovod is built if it has none that fits.

    Raises:
        BuildError: Horovod cannot be built, or does not work.
    """
    frameworks = framework_versions()
    directory = wheels / wheel_key(frameworks)
    if not (found := list(directory.glob("*.whl"))):
        found = [build_wheel(directory, frameworks)]
    _say(f"installing {found[0]}")
    _pip("install", "--no-deps", "--force-reinstall", str(found[0]), limit=_INSTALL_TIMEOUT)
    for module in frameworks:
        program = f"import horovod.{module} as hvd; hvd.init(); assert hvd.size() == 1; hvd.shutdown()"
        try:
            _run_command([sys.executable, "-c", program], limit=_INSTALL_TIMEOUT)
        except BuildError as error:
            raise BuildError(
                f"{error}\nhorovod.{module} does not work; to build it again, remove {directory} and repeat"
            ) from error
    _say(f"Horovod {VERSION} works with {', '.join(frameworks)}")


def framework_versions() -> dict[str, str]:
    """Return the installed frameworks and their versions.

    Raises:
        BuildError: no framework is installed.
    """
    distributions = importlib.metadata.packages_distributions()
    found = {
        module: importlib.metadata.version(distributions[module][0]) for module in FRAMEWORKS if module in distributions
    }
    if not found:
        raise BuildError("neither PyTorch nor TensorFlow is installed here; install your framework and repeat")
    return found


def wheel_key(frameworks: Mapping[str, str]) -> str:
    """Return the name of the directory for wheels, which contains everything that they depend on."""
    parts = [f"horovod-{VERSION}", sys.implementation.cache_tag, *(f"{name}-{of}" for name, of in frameworks.items())]
    settings = json.dumps([_settings(frameworks), PATCHES], sort_keys=True).encode()
    return "-".join([*parts, hashlib.sha256(settings).hexdigest()[:8]])


def build_wheel(directory: Path, frameworks: Mapping[str, str]) -> Path:
    """Build the wheel in ``directory``, with a log next to it, and return its path.

    Raises:
        BuildError: a tool is missing, or the build failed.
    """
    if missing := [tool for tool in _TOOLS if shutil.which(tool, path=_path()) is None]:
        raise BuildError(f"missing tools: {', '.join(missing)}; on Debian or Ubuntu: apt-get install -y cmake make g++")
    directory.mkdir(parents=True, exist_ok=True)
    jobs = max(1, min(len(os.sched_getaffinity(0)), psutil.virtual_memory().available // _COMPILER_MEMORY))
    _say(f"building Horovod {VERSION} for {', '.join(frameworks)} with {jobs} jobs, which takes minutes")
    # Horovod's CMake files use the path of the source as a regular expression, so it must not contain a `+`.
    with tempfile.TemporaryDirectory(dir=directory) as scratch, tempfile.TemporaryDirectory() as plain:
        env = {**_settings(frameworks), **_tools(Path(scratch)), "MAKEFLAGS": f"-j{jobs}"}
        # Without pip's cache, which could return a wheel that was built for another framework.
        options = ("-v", "--no-cache-dir", "--no-build-isolation", "--no-deps")
        _pip(
            *("download", *options, "--no-binary=horovod", f"--dest={plain}", f"horovod=={VERSION}"),
            limit=_INSTALL_TIMEOUT,
            env=env,
        )
        source = unpack_source(Path(plain))
        _pip(
            *("wheel", *options, f"--wheel-dir={scratch}", str(source)),
            limit=_BUILD_TIMEOUT,
            env=env,
            log=directory / "build.log",
        )
        (wheel,) = Path(scratch).glob("*.whl")
        return wheel.replace(directory / wheel.name)


def unpack_source(directory: Path) -> Path:
    """Unpack the source archive in ``directory``, apply `PATCHES`, and return the directory of the source.

    Raises:
        BuildError: the patches do not fit the source.
    """
    (archive,) = directory.glob("horovod-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    source = directory / archive.name.removesuffix(".tar.gz")
    for name, old, new in PATCHES:
        text = (source / name).read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise BuildError(f"{name} of {archive.name} has {old!r} {text.count(old)} times; expected once")
        (source / name).write_text(text.replace(old, new), encoding="utf-8")
    return source


def _tools(scratch: Path) -> dict[str, str]:
    """Install the build tools in ``scratch``, and return the environment that selects them."""
    compiler, packages = scratch / "g++", scratch / "packages"
    compiler.write_text(_COMPILER % os.environ.get("CXX", "g++"), encoding="utf-8")
    compiler.chmod(0o755)
    _pip("install", "--target", str(packages), *_BACKEND, limit=_INSTALL_TIMEOUT)
    return {
        "CXX": str(compiler),
        "PATH": _path(),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(packages), os.environ.get("PYTHONPATH")])),
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # CMake 4 dropped older policies, which Horovod requests
    }


def _settings(frameworks: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of Horovod's build. Users may add CXXFLAGS and others, such as HOROVOD_GPU_OPERATIONS."""
    choices = {
        f"HOROVOD_WITH{'' if module in frameworks else 'OUT'}_{name}": "1" for module, name in FRAMEWORKS.items()
    }
    return {
        **_SETTINGS,
        **choices,
        **{name: value for name, value in os.environ.items() if name.startswith(("HOROVOD_", "CXXFLAGS"))},
    }


def _path() -> str:
    """Return the search path for tools, with those of this environment first."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _pip(*arguments: str, limit: float, env: Mapping[str, str] | None = None, log: Path | None = None) -> None:
    _run_command([sys.executable, "-m", "pip", *arguments], limit=limit, env=env, log=log)


def _run_command(
    command: Sequence[str], *, limit: float, env: Mapping[str, str] | None = None, log: Path | None = None
) -> None:
    """Run a command to its end, and print the percentages in its output as progress.

    Raises:
        BuildError: it failed or took longer than ``limit`` seconds. The message has the last lines of its output.
    """
    lines: list[str] = []
    environment = {**os.environ, **(env or {})}
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        start_new_session=True,
    ) as process:
        killer = threading.Timer(limit, os.killpg, (process.pid, signal.SIGKILL))
        killer.start()
        try:
            _follow(process, lines)
            code = process.wait()
        finally:
            killer.cancel()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    if log:
        log.write_text("".join(lines), encoding="utf-8")
    if code:
        kept = f"; its whole output is in {log}" if log else ""
        last = "".join(lines[-_LAST_LINES:])
        raise BuildError(f"{last}\n{' '.join(command[:5])} ... failed with {code} within {limit:.0f} s{kept}")


def _follow(process: subprocess.Popen[str], lines: list[str]) -> None:
    shown = 0
    for line in process.stdout or ():
        lines.append(line)
        if (match := _PERCENT.search(line)) and int(match[1]) >= shown + 5:
            shown = int(match[1])
            _say(f"{shown} %")


def _say(what: object) -> None:
    print(f"det_horovod.build: {what}", file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that compilers are killed, too
    sys.exit(main(sys.argv[1:]))
