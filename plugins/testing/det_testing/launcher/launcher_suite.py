"""Attributes and fixtures that all parts of the suite for launchers share."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, ClassVar, cast

import psutil
import pytest

from det_core.config import parse_config
from det_core.interfaces.launcher import PYTHON, Launcher
from det_core.launch.launchers import open_launcher
from det_core.plugins import plugin_registry
from det_core.specs import LauncherSpec
from det_testing.launcher.watched_launch import PRELUDE, WatchedLaunch
from det_testing.suite import ComplianceSuite

Launch = Callable[..., WatchedLaunch]
"""Function that starts a script. Its keywords are fields of `LaunchRequest`, ``files`` and ``launcher``."""
IsRunning = Callable[[int], bool]
"""Function that returns whether a process is running on its node."""

INFO: Mapping[str, Mapping[str, Any]] = {
    "cluster.json": {
        "master_url": "sqlite:////no/such/file.db",
        "cluster_id": "0123456789abcdef",
        "agent_id": "",
        "task_id": "7.task",
        "task_type": "TRIAL",
        "allocation_id": "allocation",
        "session_token": "",
        "latest_checkpoint": None,
    },
    "trial.json": {
        "trial_id": 7,
        "experiment_id": 3,
        "trial_seed": 11,
        "hparams": {"name": "Grün 'und' \"Blau\"\n", "rates": [0.1, 1e-9]},
        "config": {"data": {"lines": "a\nb"}},
        "steps_completed": 0,
        "trial_run_id": 1,
    },
}
"""Info files of all launches."""


class LauncherSuite(ComplianceSuite):
    """Attributes that describe the launcher, set by subclasses."""

    name: ClassVar[str] = ""
    """Name of the launcher, as in ``launcher.type``. Its distribution must be installed."""
    options: ClassVar[Mapping[str, Any]] = {}
    """Options beside ``type`` in the ``launcher`` block."""
    blocks: ClassVar[Mapping[str, Any]] = {}
    """Further blocks of the config, such as ``environment`` with the keys that the launcher claims."""
    slots: ClassVar[int] = 2
    """Number of slots that these options give, at least 2."""
    queues: ClassVar[bool] = True
    """Whether launches wait for slots. False if there are slots without end, or if `LaunchDelayed` is raised."""
    orders: ClassVar[bool] = True
    """Whether launches that wait go by priority and submission. False if an engine has an order of its own."""
    numbers_slots: ClassVar[bool] = True
    """Whether the slots of a node have numbers of their own. False if an engine hides the slots of other launches, so
    that each launch counts from 0."""
    has_engine: ClassVar[bool] = False
    """Whether an engine keeps launches of a runner that is frozen, which `Launcher.open` of the next one then ends."""
    outlives_connection: ClassVar[float] = 0.0
    """Seconds for which processes outlive a lost connection with their runner, as the options say. 0 if they end."""
    is_local: ClassVar[bool] = True
    """Whether the processes run on this machine, where tests can see and limit them."""
    sends_secrets: ClassVar[bool] = True
    """Whether processes get the secrets of the request. False if they read the files of this user."""
    code_size: ClassVar[int] = 90 << 20
    """Size of a large context directory in bytes."""
    limit: ClassVar[float] = 60.0
    """Time limit of a launch in seconds, including its start."""

    @pytest.fixture
    def is_running(self) -> IsRunning:
        """Return a function that returns whether a process id belongs to a running process of the node.

        Subclasses override this fixture if the processes run in another process id namespace or on another machine.
        """
        return is_running_here

    @pytest.fixture
    def lose_connection(self) -> Callable[[], None]:
        """Return a function that ends the connection with the nodes, which is the commands that this process started.

        Subclasses override this fixture if the connection is something else.
        """
        before = set(psutil.Process().children())

        def kill_commands() -> None:
            for command in set(psutil.Process().children()) - before:
                command.kill()

        return kill_commands

    @pytest.fixture(autouse=True)
    def home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Set ``DET_HOME`` and the directory of this machine's slots to empty directories, and return the first."""
        home = tmp_path / "det-home"
        monkeypatch.setenv("DET_SLOTS_DIR", str(tmp_path / "slots"))
        monkeypatch.setenv("DET_HOME", str(home))
        return home

    @pytest.fixture
    def scratch(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        """Set the directory for temporary files to an empty one with a short path, and return it."""
        with tempfile.TemporaryDirectory(prefix="det-") as directory:
            Path(directory).chmod(0o755)  # as /tmp, which others can enter
            monkeypatch.setenv("TMPDIR", directory)
            monkeypatch.setattr(tempfile, "tempdir", directory)
            yield Path(directory)

    @pytest.fixture
    def spec(self) -> LauncherSpec:
        """Return the spec of the launcher."""
        assert self.name, f"{type(self).__name__} must set name = 'my_launcher'"
        return cast("LauncherSpec", plugin_registry().find("launcher", self.name))

    @pytest.fixture
    def launcher(self, spec: LauncherSpec) -> Iterator[Launcher]:
        """Return the launcher. It is opened, and closed after the test."""
        launcher = open_launcher(parse_config(self.experiment_config()))
        launcher.open("suite")
        with closing(launcher):
            yield launcher

    @pytest.fixture
    def launch(self, launcher: Launcher, tmp_path: Path) -> Iterator[Launch]:
        """Return a function that starts a Python script. After the test, all launches are ended."""
        with ExitStack() as ending:
            default = launcher

            def start(
                script: str = "",
                *,
                key: str = f"suite-{tmp_path.name}",
                files: Mapping[str, bytes] | None = None,
                launcher: Launcher | None = None,
                **fields: Any,
            ) -> WatchedLaunch:
                request = {"argv": [PYTHON, "main.py"], "slots": 1, "info": INFO, **fields}
                request.setdefault("code", pack_code({"main.py": (PRELUDE + script).encode(), **(files or {})}))
                launch = WatchedLaunch(launcher or default, self.limit, key=key, **request)
                ending.callback(launch.release)
                return launch

            yield start

    @classmethod
    def experiment_config(cls, **keys: Any) -> dict[str, Any]:
        """Return the config of an experiment with this launcher.

        Args:
            keys: further keys of the config.
        """
        searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 6}}
        launcher = {"type": cls.name, **cls.options}
        return {"entrypoint": "python3 main.py", "searcher": searcher, "launcher": launcher, **cls.blocks, **keys}

    def require_local(self, why: str) -> None:
        """Skip the test if the processes run elsewhere."""
        if not (self.is_local and os.path.isdir("/proc")):  # noqa: PTH112
            pytest.skip(f"the processes do not run on this machine, or it has no /proc: {why}")


def is_running_here(pid: int) -> bool:
    """Return whether a process of this machine exists and is not a zombie."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def pack_code(files: Mapping[str, bytes]) -> bytes:
    """Return an archive of these files as in `LaunchRequest.code`. Scripts of shells are executable.

    It depends on the files only.
    """
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=1, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", encoding="utf-8") as archive,
    ):
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755 if name.endswith(".sh") else 0o644
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
