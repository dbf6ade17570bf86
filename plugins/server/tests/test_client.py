"""The command line and the SDK with a det server of another home directory, as on another machine."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from det_core.cli import main
from det_core.errors import ExperimentBusy, TrackingError
from det_core.experimental import Determined
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

from .serving import LIMIT, ServerProcess, running_server, wait_for

pytestmark = pytest.mark.integration

Det = Callable[..., str]

SCRIPT = """\
import os, time
import det_core
from det_core import core

info = det_core.get_cluster_info()
print("store:", info.master_url, os.environ.get("DET_MASTER"), repr(os.environ.get("DET_TOKEN")), flush=True)
with core.init() as context:
    for step in range(1, info.trial.hparams["steps"] + 1):
        print(f"step {step}", flush=True)
        context.train.report_training_metrics(steps_completed=step, metrics={"loss": 1 / step})
        time.sleep(info.trial.hparams["seconds"])
        if context.preempt.should_preempt():
            break
    context.train.report_validation_metrics(steps_completed=step, metrics={"loss": 1 / step})
    with context.checkpoint.store_path({"steps_completed": step}) as (path, uuid):
        (path / "model").write_text(str(step))
"""
CONFIG: dict[str, Any] = {
    "name": "uploaded",
    "entrypoint": "python3 train.py",
    "environment": {"environment_variables": ["SERVICE_PASSWORD=swordfish"]},
    "hyperparameters": {"steps": 3, "seconds": 0},
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 3}},
    "checkpoint_storage": {"save_trial_best": 1},
    "max_restarts": 0,
}


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """Return a directory with a script and a config, and use it as working directory of the client."""
    directory = tmp_path / "code"
    directory.mkdir()
    (directory / "train.py").write_text(SCRIPT)
    (directory / "const.yaml").write_text(json.dumps(CONFIG))
    return directory


@pytest.fixture
def server_home(tmp_path: Path) -> Path:
    return tmp_path / "server-home"


@pytest.fixture
def server(server_home: Path) -> Iterator[ServerProcess]:
    with running_server(home=server_home) as running:
        yield running


@pytest.fixture
def there(server: ServerProcess, server_home: Path) -> Iterator[TrackingStore]:
    """Return the store of the server, opened directly."""
    with open_store(f"sqlite:///{server_home}/det.db") as store:
        yield store


def url_of(server: ServerProcess) -> str:
    return server.link.partition("/?")[0]


@pytest.fixture
def det(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that runs a command of the client, with these variables, and returns its output."""

    def run(*words: object, code: int = 0, **variables: str) -> str:
        capfd.readouterr()
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            ended = main([*map(str, words)])
        output = "".join(capfd.readouterr())
        assert ended == code, output
        return output

    return run


def test_an_experiment_is_uploaded_and_trained_by_the_server(
    server: ServerProcess, server_home: Path, there: TrackingStore, det_home: Path, code: Path, det: Det
) -> None:
    url = url_of(server)
    with pytest.raises(TrackingError, match=f"to log in: det login {url}"):
        open_store(url)
    with pytest.raises(TrackingError, match="to log in"):
        open_store(f"{url}/?token=wrong")
    assert "to log in: det login" in det("-m", url, "experiment", "list", code=1)
    assert f"Logged in at {url} as" in det("login", server.link)
    text = det("-m", url, "experiment", "create", code / "const.yaml", code, "--follow")
    assert "Created experiment 1" in text
    assert "step 3" in text
    assert f"to get it: det -m {url} checkpoint download" in text
    (listed,) = json.loads(det("-m", url, "experiment", "list", "--json"))
    assert (listed["name"], listed["state"]) == ("uploaded", "COMPLETED")
    with tarfile.open(fileobj=BytesIO(there.model_definition(1))) as archive:
        assert {"train.py", "const.yaml"} <= {Path(name).name for name in archive.getnames()}
    assert not (det_home / "det.db").exists()
    (checkpoint,) = there.checkpoints(experiment_id=1)
    assert (server_home / "checkpoints" / checkpoint.uuid).exists(), "although the config was read on the client"
    assert not any((det_home / "checkpoints").iterdir())
    # The secret is a file of the server, and nowhere in the record.
    recorded = json.dumps(dict(there.experiment(1).config)) + there.experiment(1).original_config
    assert "swordfish" not in recorded
    assert {file.read_text().strip() for file in (server_home / "secrets").iterdir()} == {"swordfish"}
    assert f"Logged out at {url}" in det("logout", url)


def test_the_sdk_starts_stops_and_resumes_on_the_server(
    server: ServerProcess, there: TrackingStore, det_home: Path, code: Path, det: Det
) -> None:
    client = Determined(master=server.link)
    assert server.token not in repr(client)
    config = {**CONFIG, "hyperparameters": {"steps": 10_000, "seconds": 0.2}}
    experiment = client.create_experiment(config, code)
    assert experiment.state is State.ACTIVE
    with pytest.raises(ExperimentBusy, match="is running already"):
        experiment.activate()
    wait_for(lambda: there.trials(1) and list(there.metrics(1)))
    experiment.pause()
    assert experiment.wait() is State.PAUSED
    experiment.activate()
    wait_for(lambda: there.trial(1).run_id == 2)
    experiment.kill()
    assert experiment.wait() is State.CANCELED
    (checkpoint,) = there.checkpoints(experiment_id=1)
    variables = {"DET_MASTER": url_of(server), "DET_TOKEN": server.token}
    # An old experiment cannot be resumed, but one of its checkpoints can start another one.
    change = ("--config", "hyperparameters={steps: 2, seconds: 0}")
    det("login", server.link)
    text = det("experiment", "continue", 1, "--checkpoint", checkpoint.uuid, *change, "--follow", **variables)
    assert "Created experiment 2" in text
    assert there.experiment(2).state is State.COMPLETED
    assert not (det_home / "det.db").exists()


def test_a_runner_here_records_on_the_server_and_its_workers_get_no_token(
    server: ServerProcess, there: TrackingStore, det_home: Path, code: Path, det: Det
) -> None:
    det("login", server.link)
    text = det("run", code / "const.yaml", DET_MASTER=url_of(server), DET_TOKEN="wrong", code=1)
    assert "to log in" in text
    text = det("-m", url_of(server), "run", code / "const.yaml", DET_TOKEN="of another server")
    assert "DET_TOKEN is not used: it is for the server that DET_MASTER names, which is not" in text
    assert text.startswith("Checkpoints stay on this machine")
    assert there.experiment(1).state is State.COMPLETED
    lines = [line.log for line in there.logs(1)]
    assert "store: agent: agent: ''" in lines
    assert [line for line in lines if line.startswith("step")] == ["step 1", "step 2", "step 3"]
    assert (det_home / "checkpoints").exists()
    assert not (det_home / "det.db").exists()


def test_a_killed_server_interrupts_no_training(server_home: Path, det_home: Path, code: Path, det: Det) -> None:
    config = {**CONFIG, "hyperparameters": {"steps": 60, "seconds": 0.05}}
    (code / "const.yaml").write_text(json.dumps(config))
    with ExitStack() as running:
        server = running.enter_context(running_server(home=server_home))
        there = running.enter_context(open_store(f"sqlite:///{server_home}/det.db"))
        url = url_of(server)
        det("login", server.link)
        command = [sys.executable, "-m", "det_core.cli", "-m", url, "run", str(code / "const.yaml")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
            running.callback(run.kill)
            for step in (5, 30):
                wait_for(lambda step=step: there.experiments() and reached(there) >= step)  # type: ignore[misc]
                server.process.kill()
                server.process.wait(LIMIT)
                server = running.enter_context(running_server("--port", url.rpartition(":")[2], home=server_home))
            text, _ = run.communicate(timeout=3 * LIMIT)
        assert run.returncode == 0, text
        assert [report.steps_completed for report in there.metrics(1, group="training")] == list(range(1, 61))
        assert [line.log for line in there.logs(1) if "step" in line.log] == [f"step {n}" for n in range(1, 61)]
        assert (there.trial(1).restarts, there.trial(1).run_id) == (0, 1)


def reached(store: TrackingStore) -> int:
    return max((trial.steps_completed for trial in store.trials(1)), default=0)
