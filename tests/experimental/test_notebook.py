"""The function `create` in a real notebook. A class of a cell trains in it, and the cell shows the progress."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from det_testing.requirements import skip_or_fail_in_ci

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

CELLS = (
    "import det_core as det\nfrom det_toy import ToyTrial\nclass T(ToyTrial):\n    pass",
    "searcher = {'name': 'single', 'metric': 'validation_loss', 'max_length': {'batches': 4}}\n"
    "experiment = det.experimental.create(T, {'searcher': searcher}, local=True)",
    "print(experiment.state.value, experiment.top_checkpoint().batch_number)",
    "try:\n    det.experimental.create(T, context_dir='.')\nexcept det.errors.DetError as error:\n    print(error)",
    "with det.core.init(config={'searcher': {'metric': 'accuracy'}}) as context:\n"
    "    for step in (1, 2):\n"
    "        context.train.report_validation_metrics(step, {'accuracy': step / 2})",
    "det.experimental.Determined().get_experiment(2)",
)


def test_a_class_of_a_cell_trains_in_the_notebook(tmp_path: Path) -> None:
    if not (find_spec("ipykernel") and find_spec("nbclient")):
        skip_or_fail_in_ci("no ipykernel or nbclient: pip install 'det-core[dev]'")
    from nbclient import NotebookClient
    from nbformat.v4 import new_code_cell, new_notebook

    notebook = new_notebook(cells=list(map(new_code_cell, CELLS)))
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    _, trained, result, refused, script, listed = notebook.cells
    shown = [output["data"] for output in trained.outputs if output["output_type"] == "display_data"]
    printed = "".join(output["text"] for output in trained.outputs if output["output_type"] == "stream")
    done = "experiment 1: 100%"
    (panel,) = shown
    assert panel["text/plain"] == done
    assert f'<progress value="1.0"></progress> {done}' in panel["text/html"]
    assert panel["text/html"].count("<svg") == 1  # training and validation share the chart of the loss
    assert {"training", "validation", "loss"} <= set(re.findall(r">(\w+)</text>", panel["text/html"]))
    assert "trial 1: batch 4 validation validation_loss=" in printed
    assert result.outputs[0]["text"] == "COMPLETED 4\n"
    assert "T is defined in this interactive session" in refused.outputs[0]["text"]
    (script_output,) = script.outputs
    assert script_output["data"]["text/plain"].startswith(
        "experiment 2 (notebook)\nexperiment 2 completed: 2 batches, "
    )
    assert script_output["data"]["text/html"].count("<circle") == 2
    assert ">COMPLETED</td>" in listed.outputs[0]["data"]["text/html"]
