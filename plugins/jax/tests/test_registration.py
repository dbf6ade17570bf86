"""What the command finds out about a trial without JAX."""

from __future__ import annotations

from pathlib import Path

import pytest
from det_testing.plugin_metadata import write_plugin_metadata

from det_core.cli import main
from det_core.plugins import plugin_registry

BACKEND = Path(__file__).parents[3] / "examples" / "backend_plugin"
CONFIG = """\
entrypoint: model_def:Mine
hyperparameters: {global_batch_size: 4}
searcher: {name: single, metric: validation_loss, max_length: {batches: 1}}
resources: {slots_per_trial: %d}
"""


def test_several_slots_are_refused_at_the_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_plugin_metadata(tmp_path, "det-ring")
    for site in (tmp_path, BACKEND):
        monkeypatch.syspath_prepend(site)
    plugin_registry.cache_clear()
    (tmp_path / "model_def.py").write_text("import det_jax\nclass Mine(det_jax.JaxTrial): ...\n")
    config = tmp_path / "const.yaml"
    config.write_text(CONFIG % 2)
    assert main(["config", "check", str(config)]) == 2
    told = capsys.readouterr().err
    assert (
        "the trial's framework 'jax' can train on several slots only with a distributed backend that adapts it" in told
    )
    assert "set resources: {slots_per_trial: 1}" in told
    config.write_text(CONFIG % 1)
    assert main(["config", "check", str(config)]) == 0
    plugin_registry.cache_clear()
