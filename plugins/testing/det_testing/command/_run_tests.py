"""Tests of the exit codes and the output of a command."""

from __future__ import annotations

import argparse
import json
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from det_testing.command._command_suite import CommandSuite, Det, Ran

_TIMEOUT = 60
_GRACE = 0.3
"""Seconds between the first output and Ctrl-C, in which the command begins to wait."""


class CommandRunTests(CommandSuite):
    """Tests that people, scripts and shells learn from a command how it ended."""

    def test_a_success_exits_with_0(self, det: Det) -> None:
        """Scripts continue after the exit code 0 only, and read the output without escape sequences of colours."""
        ran = det(self.name, *self.arguments)
        assert ran.returncode == 0, ran.stderr
        assert "\x1b" not in ran.stdout

    def test_a_wrong_option_is_a_usage_error(self, det: Det) -> None:
        """The exit code 2 and the usage on stderr distinguish a typing error from a failure."""
        ran = det(self.name, *self.arguments, "--no-such-option")
        assert (ran.returncode, ran.stdout) == (2, "")
        assert "--no-such-option" in ran.stderr and "usage: det" in ran.stderr

    def test_a_failure_is_one_line(self, det: Det) -> None:
        """A command raises DetError or OSError, which det prints. Other errors are bugs and have a traceback."""
        ran = det(self.name, *self._failing())
        assert (ran.returncode, ran.stdout) == (1, "")
        assert ran.stderr.startswith("det: error: ") and ran.stderr.count("\n") == 1, ran.stderr

    def test_json_is_one_document(self, det: Det, parser: argparse.ArgumentParser) -> None:
        """With ``--json``, notices go to stderr, because programs read stdout."""
        self._skip_without_json(parser)
        ran = det(self.name, *self.arguments, "--json")
        assert ran.returncode == 0, ran.stderr
        _parse(ran)

    def test_a_failure_is_one_document(self, det: Det, parser: argparse.ArgumentParser) -> None:
        """With ``--json``, det prints errors as ``{"error": ...}``, so the command must not have printed yet."""
        self._skip_without_json(parser)
        ran = det(self.name, *self._failing(), "--json")
        assert ran.returncode == 1
        assert _parse(ran).keys() == {"error"}

    def test_an_interrupted_run_ends_with_130(self, directory: Path, environment: dict[str, str]) -> None:
        """Shells stop a script after a command that ends with 130. A command must not catch KeyboardInterrupt."""
        if self.waiting is None:
            pytest.skip("the attribute `waiting` is not set")
        command = [sys.executable, "-m", "det_core.cli", self.name, *self.waiting]
        with subprocess.Popen(
            command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
        ) as process:
            try:
                assert process.stdout is not None
                assert select.select([process.stdout], [], [], _TIMEOUT)[0], "`waiting` has printed nothing"
                time.sleep(_GRACE)
                assert process.poll() is None, f"`waiting` has ended: {process.stdout.read()}"
                process.send_signal(signal.SIGINT)
                text, _ = process.communicate(timeout=_TIMEOUT)
            finally:
                process.kill()
        assert process.returncode == 130, text
        assert "Traceback" not in text

    def _failing(self) -> tuple[str, ...]:
        assert self.failing, f"{type(self).__name__} must set failing = ('arguments', 'of a run that fails')"
        return tuple(self.failing)

    def _skip_without_json(self, parser: argparse.ArgumentParser) -> None:
        if not hasattr(parser.parse_args(list(self.arguments)), "json"):
            pytest.skip("the command has no option --json")


def _parse(ran: Ran) -> dict[str, object]:
    """Return the JSON document on stdout."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    document: dict[str, object] = json.loads(ran.stdout, parse_constant=refuse)
    return document
