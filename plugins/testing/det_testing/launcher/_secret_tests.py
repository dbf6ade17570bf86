"""Tests of secrets."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path

import pytest

from det_testing.launcher import _leaks
from det_testing.launcher.launcher_suite import Launch, LauncherSuite

_NAME = "-".join(["0123456789abcdef" * 2] * 2)
# New in each process, so that no copy of this file contains it.
_SECRET = f"pA55-{uuid.uuid4().hex}"
_READ = f"""
directory = os.environ["DET_SECRETS_DIR"]
report(open(os.path.join(directory, "{_NAME}")).read().strip()[::-1])
report(sorted(os.listdir(directory)))
"""
_SEARCH = f"""
import tempfile
import leaks
roots = [tempfile.gettempdir(), os.environ.get("DET_HOME", "."), os.getcwd(), os.environ["DET_INFO_DIR"]]
report(os.environ["PASSWORD"][::-1])
report(leaks.find_leaks({_SECRET[::-1]!r}[::-1], roots))
sys.stdin.read()
time.sleep(0.5)
"""


class LaunchSecretTests(LauncherSuite):
    """Tests that processes get their secrets, and nobody else."""

    def test_processes_read_the_secrets_of_their_config(self, launch: Launch) -> None:
        """Configs contain references, which are resolved where a secret is needed. Other secrets stay here."""
        if not self.sends_secrets:
            pytest.skip("the processes read the secrets of this user")
        one = launch(_READ, secrets={_NAME: _SECRET})
        one.require_code()
        assert one.reports() == [_SECRET[::-1], [_NAME]]

    def test_secrets_are_not_visible_to_others(self, launch: Launch, scratch: Path, home: Path) -> None:
        """Command lines can be read by all users of a machine. Variables and files of det cannot."""
        one = launch(
            _SEARCH,
            secrets={_NAME: _SECRET},
            env={"PASSWORD": _SECRET},
            files={"leaks.py": Path(_leaks.__file__).read_bytes()},
        )
        assert one.report(0) == _SECRET[::-1]
        here = _leaks.find_leaks(_SECRET, [tempfile.gettempdir(), str(home)])
        one.require_code()
        assert (here, one.report(1)) == ([], []), "expected that no command line and no file shows the secret"
        assert not [line for line in one.lines if _SECRET in line.text]
        assert _SECRET not in repr(one.request)
