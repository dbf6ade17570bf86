"""The SDK with a det server, which trains what it receives."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from det_core.config import parse_config
from det_core.errors import ExperimentBusy
from det_core.experimental import Determined, ExperimentReference, create
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.launch.context_archive import unpack_context_dir
from det_core.runner import continue_in_background, submit_experiment
from det_core.tracking import open_store
from det_core.trial import load_trial_class

from ..answering_server import Behaviour, served

CONFIG: dict[str, Any] = {
    "name": "sent",
    "entrypoint": "python3 train.py",
    "environment": {"environment_variables": ["API_TOKEN=swordfish"]},
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
}


class Server:
    """Server that records submissions and orders to start, and trains nothing."""

    def __init__(self, store: TrackingStore, directory: Path) -> None:
        self.store = store
        self.directory = directory
        self.received: list[tuple[str, Mapping[str, Any]]] = []
        self.behaviour = Behaviour(
            store,
            routes={
                "/api/experiments": self.submit,
                "/api/experiments/1/start": self.start,
                "/api/experiments/1/continue": self.go_on,
            },
        )

    def submit(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        code = self.directory / str(len(self.received))
        code.mkdir()
        unpack_context_dir(base64.b64decode(body["code"]), code)
        made = submit_experiment(
            self.store,
            parse_config(body["config"]),
            code,
            original_config=body["original_config"],
            external_id=body["external_id"],
            owner="ada",
        )
        self.received.append(("submit", {**body, "files": sorted(path.name for path in code.iterdir())}))
        return {"id": made.id, "notices": []}

    def start(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if any(kind == "start" for kind, _ in self.received):
            raise PermissionError("experiment 1 is being run by somebody")
        self.received.append(("start", body))
        return {}

    def go_on(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        self.received.append(("continue", body))
        return {"id": 1}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    directory = tmp_path / "uploads"
    directory.mkdir()
    with open_store(f"sqlite:///{tmp_path}/there.db") as store:
        yield Server(store, directory)


@pytest.fixture
def address(server: Server) -> Iterator[str]:
    with served(server.behaviour) as url:
        yield url


@pytest.fixture
def script(context_dir: Path) -> Path:
    (context_dir / "train.py").write_text("pass\n")
    return context_dir


def test_an_experiment_is_sent_with_its_code_and_secrets(
    server: Server, address: str, script: Path, det_home: Path
) -> None:
    experiment = Determined(master=address).create_experiment(CONFIG, script)
    ((_, body),) = server.received
    assert body["files"] == ["train.py"]
    assert "swordfish" in str(body["config"])  # the server needs it, and keeps it in a file
    assert (experiment.id, experiment.state, server.store.experiment(1).owner) == (1, State.QUEUED, "ada")
    assert not (det_home / "det.db").exists()


def test_a_repeated_submission_creates_one_experiment(server: Server, address: str, script: Path) -> None:
    client = Determined(master=address)
    server.behaviour.lost_answers = 1
    client.create_experiment(CONFIG, script)
    assert [kind for kind, _ in server.received] == ["submit", "submit"]
    assert len(server.store.experiments()) == 1


def test_create_sends_a_class(server: Server, address: str, context_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (context_dir / "sent_trial.py").write_text("from det_toy import ToyTrial\n\nclass T(ToyTrial):\n    pass\n")
    monkeypatch.syspath_prepend(context_dir)
    monkeypatch.chdir(context_dir)
    trial_class = load_trial_class("sent_trial:T")
    experiment = create(trial_class, context_dir=str(context_dir), master_url=address)
    assert isinstance(experiment, ExperimentReference)
    ((_, body),) = server.received
    assert (body["config"]["entrypoint"], body["files"]) == ("sent_trial:T", ["sent_trial.py"])


def test_the_server_resumes(server: Server, address: str, script: Path) -> None:
    experiment = Determined(master=address).create_experiment(CONFIG, script)
    experiment.activate(from_beginning=True)
    assert server.received[1:] == [("start", {"from_beginning": True})]
    with pytest.raises(ExperimentBusy, match="experiment 1 is being run by somebody"):
        experiment.activate()


def test_a_start_whose_answer_is_lost_succeeds(server: Server, address: str, script: Path) -> None:
    experiment = Determined(master=address).create_experiment(CONFIG, script)
    server.behaviour.lost_answers = 1
    experiment.activate()
    assert [kind for kind, _ in server.received] == ["submit", "start"]


def test_the_server_continues(server: Server, address: str, script: Path) -> None:
    Determined(master=address).create_experiment(CONFIG, script)
    with open_store(address) as store:
        assert continue_in_background(store, 1, ["max_restarts=9"], checkpoint="uuid").id == 1
    _, body = server.received[1]
    assert (body["changes"], body["checkpoint"], len(body["external_id"])) == (["max_restarts=9"], "uuid", 32)
