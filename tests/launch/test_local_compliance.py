"""The local launcher passes the compliance suite, whether its workers are started or forked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest
from det_testing.launcher import LauncherCompliance

from det_core.launch import node_agent
from det_core.launch._guarded_command import SpawnedCommand
from det_core.launch._prepared_command import PreparedCommand

pytestmark = pytest.mark.integration


class TestLocal(LauncherCompliance):
    name = "local"
    options: ClassVar = {"slots": 2}
    sends_secrets = False


class TestPrepared(LauncherCompliance):
    """The scripts of the suite run in forks, as the workers of trial classes do."""

    name = "local"
    options: ClassVar = {"slots": 2}
    sends_secrets = False

    @pytest.fixture(autouse=True)
    def _fork(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def start(argv: Sequence[str], env: Mapping[str, str], **keep: Any) -> SpawnedCommand | PreparedCommand:
            if argv[1:] != ["main.py"]:
                return SpawnedCommand(argv, env, **keep)
            return PreparedCommand([], ["main"], env, **keep, explain=pytest.fail)

        monkeypatch.setattr(node_agent, "SpawnedCommand", start)
