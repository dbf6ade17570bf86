"""Secrets of a config reach the plugin only, and neither the store, the logs, other users nor a screen."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import pty
import re
import stat
import subprocess
import sys
import tarfile
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from det_core import core, storage
from det_core.cli import main
from det_core.cli.commands.run import submit_config_file
from det_core.config import parse_config
from det_core.core import open_storage_block
from det_core.core._experiment_settings import recorded_settings
from det_core.errors import ConfigError, InvalidExperimentException, SecretMissing, StorageError
from det_core.interfaces.records import ExperimentRecord, State
from det_core.interfaces.secrets import REFERENCE_PREFIX, SECRET_REFERENCE, Secret, map_text
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner, continue_experiment, fork_experiment, submit_experiment
from det_core.storage import read_checkpoint_metadata
from det_core.tracking.secret_files import (
    extract_secrets,
    find_missing_secrets,
    read_secrets,
    renew_places,
    resolve_secrets,
)

from .conftest import Submit, install_plugin

DET = str(Path(sys.executable).parent / "det")
VAULT = Path(__file__).parent.parent / "toy" / "det_vault.py"
ACCESS, SECRET, PIN = "AKIA-hunter2-access", "se/cr+et: 'hunter2' \"x\"", "hunter2-pin"
VARIABLE = "hunter2-variable"
KEYS = {"access_key": ACCESS, "secret_key": SECRET, "pin": PIN}
NEEDLES = [needle.encode() for needle in (ACCESS, SECRET, json.dumps(SECRET)[1:-1], PIN, VARIABLE, "hunter2")]


@pytest.fixture(autouse=True)
def vault(plugin_site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The config block of a vault, whose plugin is installed."""
    install_plugin(plugin_site, VAULT, monkeypatch)
    return {"type": "vault", "path": str(tmp_path / "vault"), **KEYS}


@pytest.fixture
def experiment(new_experiment: Submit, vault: dict[str, Any]) -> ExperimentRecord:
    return new_experiment(checkpoint_storage=vault)


def secret_files(home: Path) -> list[Path]:
    return sorted((home / "secrets").iterdir())


def holding(directory: Path) -> list[Path]:
    """Return the files under a directory that contain a secret."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return [path for path in files if any(needle in path.read_bytes() for needle in NEEDLES)]


def resolved(block: dict[str, Any]) -> dict[str, Any]:
    """Return a recorded ``checkpoint_storage`` block with its secrets."""
    found: dict[str, Any] = resolve_secrets({"checkpoint_storage": block})["checkpoint_storage"]
    return found


def leaks(content: object) -> bool:
    return "hunter2" in str(content) or "hunter2" in repr(content)


def test_the_store_has_references_and_files_have_the_secrets(
    experiment: ExperimentRecord, det_home: Path, store: TrackingStore
) -> None:
    block = experiment.config["checkpoint_storage"]
    assert all(SECRET_REFERENCE.fullmatch(block[key]) for key in KEYS)
    assert {path.read_text() for path in secret_files(det_home)} == {f"{value}\n" for value in KEYS.values()}
    assert stat.S_IMODE((det_home / "secrets").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret_files(det_home)} == {0o600}
    assert holding(det_home) == secret_files(det_home)
    assert resolved(block) == {**block, **KEYS}


@pytest.mark.integration
def test_a_trial_saves_dies_and_resumes_and_shows_no_secret(
    new_experiment: Submit,
    vault: dict[str, Any],
    det_home: Path,
    store: TrackingStore,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    mark, seen = tmp_path / "mark", tmp_path / "seen"
    experiment = new_experiment(
        f"def on_batch(self, batch):\n"
        f"    processes = []\n"
        f"    for path in Path('/proc').glob('[0-9]*/cmdline'):\n"
        f"        try: processes.append(path.read_bytes())\n"
        f"        except OSError: pass  # it has ended\n"
        f"    assert not any(b'hunter2' in line for line in processes)\n"
        f"    values = [v for v in os.environ.values() if 'hunter2' in v]\n"
        f"    data, config = self.context.get_data_config(), self.context.get_experiment_config()\n"
        f"    print(repr(self.context.config), config)\n"
        f"    info = Path(os.environ['DET_INFO_DIR'])\n"
        f"    files = {{path.name: oct(path.stat().st_mode) for path in info.glob('*.json')}}\n"
        f"    assert not any('hunter2' in path.read_text() for path in info.glob('*.json'))\n"
        f"    found = [os.environ['A_TOKEN'], values, data['password'] == {PIN!r}, files]\n"
        f"    Path({str(seen)!r}).write_text(repr(found))\n"
        f"    if batch == 25 and not Path({str(mark)!r}).exists():\n"
        f"        Path({str(mark)!r}).touch()\n"
        f"        raise RuntimeError(f'{{self.context.config}}')",
        checkpoint_storage=vault,
        min_checkpoint_period={"batches": 10},
        environment={"environment_variables": [f"A_TOKEN={VARIABLE}", "B=1"]},
        data={"password": PIN},
    )
    assert ExperimentRunner(store, experiment.id).run() is State.COMPLETED
    (trial,) = store.trials(experiment.id)
    assert (trial.run_id, trial.steps_completed) == (2, 50)
    variable, values, same, files = eval(seen.read_text())
    assert (variable, values, same) == (VARIABLE, [VARIABLE], True)
    assert set(files.values()) == {"0o100600"}
    last = store.checkpoints(experiment_id=experiment.id)[-1]
    assert read_checkpoint_metadata(open_storage_block(last.storage), last.uuid)["steps_completed"] == 50
    assert not leaks([line.log for line in store.logs(trial.id)])
    assert not leaks(store.experiment(experiment.id))
    assert not leaks(capfd.readouterr())
    assert holding(det_home) == secret_files(det_home)
    assert holding(Path(vault["path"])) == []


def test_the_text_of_the_config_and_its_variants_in_the_snapshot_have_references(
    store: TrackingStore, vault: dict[str, Any], context_dir: Path
) -> None:
    config = {
        "entrypoint": "true",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
        "checkpoint_storage": vault,
        "environment": {"environment_variables": [f"A_TOKEN={VARIABLE}"]},
        "reproducibility": {"experiment_seed": 1},
    }
    text = f"# {SECRET}\n{yaml.safe_dump(config)}"
    (context_dir / "const.yaml").write_text(text)
    (context_dir / "variant.json").write_text(json.dumps({**config, "name": "other"}))
    (context_dir / "unrelated.yaml").write_text("# kept\nx: 1\n")
    (context_dir / "not.yaml").write_bytes(b"\xff{[")
    (context_dir / "link.yaml").symlink_to("const.yaml")
    experiment = submit_experiment(store, parse_config(text), context_dir, original_config=text)
    assert not leaks(experiment)
    known = {f"{REFERENCE_PREFIX}{name[:32]}": text for name, text in read_secrets(experiment.config).items()}

    def fill(value: Any) -> Any:
        return map_text(value, lambda text: SECRET_REFERENCE.sub(lambda found: known[found.group()], text))

    assert fill(yaml.safe_load(experiment.original_config)) == config
    assert experiment.config == submit_experiment(store, parse_config(experiment.original_config), context_dir).config
    content = store.model_definition(experiment.id)
    assert b"hunter2" not in gzip.decompress(content)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        packed = {one.name: archive.extractfile(one).read() for one in archive if one.isfile()}  # type: ignore[union-attr]
        assert packed["link.yaml"] == packed["const.yaml"]
    assert packed["unrelated.yaml"] == b"# kept\nx: 1\n"
    assert packed["not.yaml"] == b"\xff{["
    assert fill(json.loads(packed["variant.json"])) == {**config, "name": "other"}


def test_changes_of_the_config_are_recorded_without_their_secrets(
    store: TrackingStore, new_experiment: Submit, vault: dict[str, Any], context_dir: Path, tmp_path: Path
) -> None:
    path = tmp_path / "const.yaml"
    path.write_text("entrypoint: model_def:T\nsearcher: {name: single, metric: loss, max_length: {batches: 1}}\n")
    new_experiment()  # writes the code
    secrets = [
        f"data.password={PIN}",
        f"data.password='{VARIABLE}'",
        f"environment.environment_variables=[A_TOKEN={PIN}]",
    ]
    changes = [
        f"checkpoint_storage={json.dumps(vault)}",
        *secrets,
        "description='in\n  lines: two'",
        "max_restarts=3",
    ]
    config = parse_config(path.read_text(), changes=changes)
    first = submit_config_file(store, config, path, context_dir, changes)
    uuid = add_checkpoint(store, first, vault)
    store.set_experiment_state(first.id, State.PAUSED)
    second = fork_experiment(store, first.id, uuid, changes[1:])
    third = continue_experiment(store, first.id, changes[-3:])
    for experiment in (first, second, third):
        assert not leaks(experiment)
        assert "# --config environment.environment_variables=********\n" in experiment.original_config
        assert "# --config max_restarts=3\n" in experiment.original_config
        assert yaml.safe_load(experiment.original_config)["entrypoint"] == "model_def:T"


def test_secrets_stay_where_they_were_whatever_a_client_changes(
    store: TrackingStore, new_experiment: Submit, vault: dict[str, Any], tmp_path: Path
) -> None:
    """They could be sent to another host otherwise. Who changes a part of their block writes them again."""
    first = new_experiment(checkpoint_storage=vault)
    uuid = add_checkpoint(store, first, vault)
    store.set_experiment_state(first.id, State.PAUSED)
    moved, hidden = f"checkpoint_storage.path={tmp_path}", first.config["checkpoint_storage"]["pin"]
    taken = f'data.x="{hidden.replace(":", chr(92) + "x3a")}"'  # as YAML, which has many ways to write a text
    for change in (moved, taken, f"environment.environment_variables=[X={hidden}]", f"launcher.slots={hidden}"):
        with pytest.raises(SecretMissing) as refused:
            fork_experiment(store, first.id, uuid, [change], by_client=True, owner="ann")
        assert not leaks(refused.value)
        if change != moved:
            with pytest.raises(SecretMissing):
                continue_experiment(store, first.id, [change], by_client=True)
    for changes, by_client in (
        ([moved], False),
        ([f"checkpoint_storage={json.dumps({**vault, 'path': str(tmp_path)})}"], True),
    ):
        with pytest.raises(InvalidExperimentException, match="is not in this experiment's checkpoint_storage"):
            fork_experiment(store, first.id, uuid, changes, by_client=by_client)
    fork = fork_experiment(store, first.id, uuid, ["checkpoint_storage.save_trial_best=2"], by_client=True, owner="ann")
    assert resolved(fork.config["checkpoint_storage"])["pin"] == PIN


def test_a_secret_is_used_only_in_its_place(store: TrackingStore, new_experiment: Submit, vault: Any) -> None:
    """Whoever writes records could name it elsewhere, where it is shown or sent to another host."""
    first = new_experiment(checkpoint_storage=vault)
    block = first.config["checkpoint_storage"]
    reference = block["pin"]
    for other in (
        {"type": "directory", "container_path": f"/tmp/{reference}"},
        {"type": "shared_fs", "host_path": reference},
        {**block, "path": "/elsewhere"},
        {**block, "added": 1},
        {**block, "added": None},
        {**block, "added": ""},
        {key: value for key, value in block.items() if key != "access_key"},
        {**block, "access_key": extract_secrets({"data": {"x": Secret("other")}})["data"]["x"]},
        {**block, "path": reference},
        {**block, "pin": block["secret_key"], "secret_key": block["pin"]},
    ):
        with pytest.raises(SecretMissing, match=r"checkpoint_storage\.\w+ is not in"):
            open_storage_block(other)
    assert resolved({**block, "save_trial_best": 7}) == {**block, **KEYS, "save_trial_best": 7}
    code = store.model_definition(first.id)
    for place in ("data", "launcher", "environment", "max_restarts", "observers"):
        config = {**first.config, place: {"x": reference}}
        shown = store.create_experiment(config=config, model_definition=code)
        store.set_experiment_state(shown.id, State.PAUSED)
        with pytest.raises(SecretMissing, match=rf"{place}\.x is not in"):
            continue_experiment(store, shown.id, ["max_restarts=3"])
    named = {**first.config, "name": reference, "hyperparameters": {"x": {"type": "const", "val": reference}}}
    experiment = store.create_experiment(config=named, model_definition=code)
    store.set_experiment_state(experiment.id, State.PAUSED)
    assert PIN not in json.dumps(continue_experiment(store, experiment.id, ["max_restarts=3"]).config)


def test_a_new_secret_counts_in_the_place_whose_file_has_it(new_experiment: Submit, vault: Any, det_home: Path) -> None:
    first = new_experiment(checkpoint_storage=vault, data={"password": PIN}).config
    (file,) = (path for path in secret_files(det_home) if path.name in read_secrets({"data": first["data"]}))
    file.write_text("another-hunter2-pin\n")
    again = new_experiment(checkpoint_storage=vault, data={"password": PIN}).config
    passwords = [resolve_secrets(config)["data"]["password"] for config in (first, again)]
    assert passwords == ["another-hunter2-pin", PIN]
    assert [resolved(config["checkpoint_storage"])["pin"] for config in (first, again)] == [PIN, PIN]
    assert recorded_settings(first).data == {"password": "another-hunter2-pin"}


def test_a_damaged_file_is_missing_and_stops_no_other_secret(new_experiment: Submit, det_home: Path) -> None:
    damaged = new_experiment(data={"password": PIN}).config
    (file,) = secret_files(det_home)
    file.write_bytes(b"p\xe4ss\n")
    with pytest.raises(SecretMissing, match=r"data\.password is not in"):
        resolve_secrets(damaged)
    again = new_experiment(data={"password": PIN, "token": VARIABLE}).config
    assert resolve_secrets(again)["data"] == {"password": PIN, "token": VARIABLE}


def test_a_client_writes_secrets_again_that_are_not_here(
    store: TrackingStore, new_experiment: Submit, vault: Any, det_home: Path
) -> None:
    """As those of an experiment that was recorded on another machine."""
    first = new_experiment(checkpoint_storage=vault, data={"password": PIN})
    uuid = add_checkpoint(store, first, vault)
    for name in read_secrets({"data": first.config["data"]}):
        (det_home / "secrets" / name).unlink()
    with pytest.raises(SecretMissing):
        fork_experiment(store, first.id, uuid, [], by_client=True)
    fork = fork_experiment(store, first.id, uuid, [f"data.password={VARIABLE}"], by_client=True)
    assert resolve_secrets(fork.config)["data"] == {"password": VARIABLE}


def test_a_release_that_adds_a_key_finds_the_secrets(new_experiment: Submit, vault: Any) -> None:
    config = new_experiment(checkpoint_storage=vault, data={"password": PIN}).config
    renewed = {
        **config,
        "checkpoint_storage": {**config["checkpoint_storage"], "added": []},
        "data": config["data"] | {"x": 1},
    }
    with pytest.raises(SecretMissing):
        resolve_secrets(renewed)
    added = {**config, "description": "x", "bind_mounts": [config["data"]["password"]]}
    renew_places(added, added)
    with pytest.raises(SecretMissing, match="bind_mounts"):
        resolve_secrets(added)
    renew_places(config, renewed)
    assert resolve_secrets(renewed)["data"] == {"password": PIN, "x": 1}
    assert resolved(renewed["checkpoint_storage"])["secret_key"] == SECRET


def test_a_secret_has_one_reference(new_experiment: Submit, vault: Any, tmp_path: Path) -> None:
    """The text of the config and its code have it as well, without the places."""
    blocks = [vault, {**vault, "path": str(tmp_path / "other")}]
    configs = [new_experiment(checkpoint_storage=block, data={"password": PIN}).config for block in blocks]
    references = [{config["checkpoint_storage"]["pin"], config["data"]["password"]} for config in configs]
    assert len(set.union(*references)) == 1
    assert [resolve_secrets(config)["data"]["password"] for config in configs] == [PIN] * 2


def add_checkpoint(store: TrackingStore, experiment: ExperimentRecord, block: dict[str, Any]) -> str:
    trial = store.create_trial(experiment.id, hparams={}, seed=0)
    run = store.start_run(trial.id, allocation_id="a")
    store.begin_checkpoint("c1", trial_id=trial.id, run_id=run.run_id, storage=experiment.config["checkpoint_storage"])
    resources = storage.save_checkpoint(open_storage_block(block), "c1", {}, {"steps_completed": 1})
    store.complete_checkpoint("c1", run_id=run.run_id, steps_completed=1, resources=resources, metadata={})
    return "c1"


def test_hyperparameters_and_labels_are_shown(new_experiment: Submit, det_home: Path) -> None:
    experiment = new_experiment(
        hyperparameters={"pad_token": "x", "secret": {"auth": "y"}}, labels=["password"], data={"max_token": 512}
    )
    assert experiment.config["hyperparameters"]["pad_token"]["val"] == "x"
    assert (experiment.labels, experiment.config["data"]) == (["password"], {"max_token": 512})
    assert not (det_home / "secrets").exists()


def test_text_that_looks_like_a_variable_is_left_alone(new_experiment: Submit, det_home: Path) -> None:
    experiment = new_experiment(environment={"environment_variables": ["OMP_NUM_THREADS=1", "MY_API_KEY="]})
    assert experiment.config["environment"]["environment_variables"]["cpu"] == ["OMP_NUM_THREADS=1", "MY_API_KEY="]
    assert not (det_home / "secrets").exists()


def test_the_same_secret_has_one_file(new_experiment: Submit, vault: dict[str, Any], det_home: Path) -> None:
    first = new_experiment(checkpoint_storage=vault)
    second = new_experiment(checkpoint_storage=vault, name="again")
    assert first.config["checkpoint_storage"] == second.config["checkpoint_storage"]
    assert len(secret_files(det_home)) == len(KEYS)


def test_a_backup_that_an_editor_left_is_no_secret(
    new_experiment: Submit, vault: dict[str, Any], det_home: Path
) -> None:
    new_experiment(checkpoint_storage=vault)
    for path in secret_files(det_home):
        path.rename(f"{path}~")
    again = new_experiment(checkpoint_storage=vault).config["checkpoint_storage"]
    assert resolved(again) == {**again, **KEYS}


def test_a_full_disk_leaves_no_experiment_and_no_half_secret(
    new_experiment: Submit, vault: dict[str, Any], det_home: Path, store: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = threading.get_ident()

    def full(_: int) -> None:
        if threading.get_ident() == writer:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        new_experiment(checkpoint_storage=vault)
    assert (secret_files(det_home), store.experiments()) == ([], [])


def test_an_optional_secret_may_be_empty(det_home: Path, vault: dict[str, Any]) -> None:
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 1}}
    config = parse_config({"searcher": searcher, "checkpoint_storage": {**vault, "secret_key": ""}})
    assert extract_secrets(config.dump())["checkpoint_storage"]["secret_key"] == ""


def test_a_config_survives_a_round_trip_and_hides_its_secrets(vault: dict[str, Any]) -> None:
    config = parse_config(
        {
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
            "checkpoint_storage": vault,
            "environment": {"environment_variables": [f"A_TOKEN={VARIABLE}"], "registry_auth": {"username": PIN}},
            "entrypoint": "m:T",
        }
    )
    assert parse_config(config.dump()) == config
    assert not leaks(config)
    assert not leaks(config.checkpoint_storage)
    assert not leaks(config.environment)
    assert "hunter2" not in repr(config.dump())
    recorded = parse_config(extract_secrets(config.dump()))
    assert parse_config(resolve_secrets(recorded.dump())) == config
    assert parse_config(yaml.safe_load(yaml.safe_dump(recorded.dump()))) == recorded


def test_errors_do_not_repeat_secrets(vault: dict[str, Any], experiment: ExperimentRecord) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config({"checkpoint_storage": {**vault, "access_key": PIN, "pni": 1}})
    assert not leaks("".join(traceback.format_exception(refused.value)))
    block = experiment.config["checkpoint_storage"]
    recorded = extract_secrets({"checkpoint_storage": {**resolved(block), "path": 7, "pin": Secret(PIN)}})
    with pytest.raises(StorageError, match=r"cannot open the recorded checkpoint_storage.*path") as failed:
        open_storage_block(recorded["checkpoint_storage"])
    assert not leaks("".join(traceback.format_exception(failed.value)))


@pytest.mark.parametrize("gone", list(KEYS))
def test_a_missing_file_is_named_before_anything_starts(
    experiment: ExperimentRecord, store: TrackingStore, gone: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ((place, path),) = find_missing_without(experiment, gone).items()
    assert place == f"checkpoint_storage.{gone}"
    with pytest.raises(SecretMissing, match=rf"checkpoint_storage\.{gone} is not in {path}.*det experiment resume"):
        ExperimentRunner(store, experiment.id)
    assert store.experiment(experiment.id).state is State.QUEUED
    assert main(["experiment", "resume", str(experiment.id)]) == 1
    assert str(path) in capsys.readouterr().err
    path.write_text(KEYS[gone])  # without a newline, as some editors do
    ExperimentRunner(store, experiment.id)
    assert resolved(experiment.config["checkpoint_storage"])[gone] == KEYS[gone]


def find_missing_without(experiment: ExperimentRecord, key: str) -> dict[str, Path]:
    assert find_missing_secrets(experiment.config) == {}
    home = Path(os.environ["DET_HOME"])
    (file,) = (home / "secrets").glob(experiment.config["checkpoint_storage"][key].partition(":")[2] + "-*")
    file.unlink()
    return find_missing_secrets(experiment.config)


@pytest.mark.integration
def test_resume_asks_in_a_terminal(experiment: ExperimentRecord, store: TrackingStore, det_home: Path) -> None:
    ((_, path),) = find_missing_without(experiment, "secret_key").items()
    controller, terminal = pty.openpty()
    with os.fdopen(controller, "r+b", buffering=0) as keyboard:
        process = subprocess.Popen(
            [DET, "experiment", "resume", str(experiment.id)],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        screen = b"".join(until(keyboard, b"Its value: "))
        keyboard.write(f"{SECRET}\n".encode())
        screen += b"".join(until(keyboard, b"Resumed experiment"))
        assert process.wait(240) == 0
    assert b"checkpoint_storage.secret_key" in screen
    assert b"hunter2" not in screen
    assert path.read_text() == f"{SECRET}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert main(["experiment", "wait", str(experiment.id), "--timeout", "240"]) == 0


def until(stream: Any, end: bytes) -> Iterator[bytes]:
    seen = b""
    while end not in seen:
        piece = os.read(stream.fileno(), 4096)
        seen += piece
        yield piece


@pytest.mark.integration
def test_a_script_records_references_and_its_checkpoints_are_found_again(
    vault: dict[str, Any], det_home: Path, store: TrackingStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "w").write_text("weights")
    with core.init(checkpoint_storage=vault) as context:
        assert "hunter2" not in repr(context)
        uuid = context.checkpoint.upload(tmp_path / "state", {"steps_completed": 1})
    assert holding(det_home) == secret_files(det_home)
    assert main(["checkpoint", "download", uuid, "-o", str(tmp_path / "back")]) == 0
    assert (tmp_path / "back" / "w").read_text() == "weights"
    for path in secret_files(det_home):
        path.unlink()
    assert main(["checkpoint", "download", uuid, "-o", str(tmp_path / "again")]) == 1
    assert str(det_home / "secrets") in capsys.readouterr().err
    assert main(["checkpoint", "describe", uuid]) == 0  # needs no secret


@pytest.mark.parametrize(
    "argv",
    [
        ("experiment", "describe", "1"),
        ("experiment", "describe", "1", "--json"),
        ("experiment", "list", "--json"),
        ("checkpoint", "describe", "c1"),
        ("checkpoint", "describe", "c1", "--json"),
        ("checkpoint", "list", "--json"),
        ("checkpoint", "gc", "--orphans", "--dry-run"),
    ],
)
def test_no_command_shows_a_secret_or_its_location(
    experiment: ExperimentRecord, store: TrackingStore, argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    trial = store.create_trial(experiment.id, hparams={}, seed=1)
    run = store.start_run(trial.id, allocation_id="a")
    block = {**experiment.config["checkpoint_storage"], "path": 7}  # so that nothing opens it
    store.begin_checkpoint("c1", trial_id=trial.id, run_id=run.run_id, storage=block)
    main(list(argv))
    shown = "".join(capsys.readouterr())
    assert "hunter2" not in shown
    assert not SECRET_REFERENCE.search(shown)
    if argv[:2] in (("experiment", "describe"), ("checkpoint", "describe")) and "--json" in argv:
        assert re.search(r'"secret_key": "\*{8}"', shown)


def test_config_check_shows_no_secret(
    tmp_path: Path, vault: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = ({"pin": {"hunter2": 1}}, {"access_key": "hunter2"}, {"access_key": PIN.ljust(19)}, {"path": __file__})
    for change in ({}, *wrong):
        config = {"searcher": {"name": "single", "metric": "l", "max_length": {"batches": 1}}, "entrypoint": "true"}
        (tmp_path / "c.yaml").write_text(yaml.safe_dump({**config, "checkpoint_storage": {**vault, **change}}))
        for json_too in ([], ["--json"]):
            assert main(["config", "check", str(tmp_path / "c.yaml"), *json_too]) == (2 if change else 0)
            shown = "".join(capsys.readouterr())
            assert "hunter2" not in shown
            assert ("does not open" in shown) is ("path" in change)
