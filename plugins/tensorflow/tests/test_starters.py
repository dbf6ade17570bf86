"""The files that ``det init --framework`` writes for the frameworks of TensorFlow."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import yaml

from det_core.cli import main
from det_core.experimental import create

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.mark.filterwarnings("ignore:non-integer arguments to randrange:DeprecationWarning")  # Keras's
@pytest.mark.parametrize("framework", ["keras", "estimator"])
def test_a_batch_of_the_starter_is_trained(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    code = tmp_path / "code"
    code.mkdir()
    monkeypatch.chdir(code)
    assert main(["init", "--framework", framework]) == 0
    assert main(["config", "check", "const.yaml"]) == 0
    config = yaml.safe_load(Path("const.yaml").read_text())
    module, _, trial_class = config["entrypoint"].partition(":")
    monkeypatch.syspath_prepend(code)
    try:
        create(getattr(importlib.import_module(module), trial_class), config, local=True, test=True)
    finally:
        sys.modules.pop(module, None)
    printed = capsys.readouterr().out
    assert "The test passed: training metrics" in printed
    assert "validation metrics" in printed
