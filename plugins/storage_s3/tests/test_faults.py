"""Checkpoints survive network faults, server faults and SIGKILL at any request, and visible ones are complete."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from det_storage_s3._bucket import open_s3_storage
from det_storage_s3._config import S3Config
from det_testing import campaign_seeds, is_soak
from det_testing.proxy import Fault, FaultyProxy, ProxiedRequest
from rgw import Server

from det_core import core, storage
from det_core.cli import main
from det_core.errors import DetError
from det_core.interfaces.records import State
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

pytestmark = [pytest.mark.integration, pytest.mark.campaign]
SEEDS = campaign_seeds(few=1, many=300)
TIMEOUT = 2
"""Time in seconds for which the client waits for a response."""
LIMIT = 150
"""Time limit of each operation in seconds, whether it succeeds or fails."""
LARGE = (16 << 20) + 1
"""Size in bytes of a file that is transferred in three parts."""
BUCKET = "faults"


class Mischief:
    """Plan of random faults, which depend only on the seed and the order of requests."""

    def __init__(self, chance: random.Random) -> None:
        self._chance, self._lock = chance, threading.Lock()
        self._share = chance.choice([0.02, 0.1, 0.3])
        self._faults = list(Fault)
        self.seen: list[Fault] = []

    def __call__(self, request: ProxiedRequest) -> Fault | None:
        with self._lock:
            if self._chance.random() > self._share:
                return None
            self.seen.append(self._chance.choice(self._faults))
            return self.seen[-1]


@pytest.fixture(scope="module")
def server(ceph: Server) -> Server:
    ceph.client().create_bucket(Bucket=BUCKET)
    return ceph


@pytest.fixture(autouse=True)
def _record_and_keys(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "det-home"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_key)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


@pytest.fixture
def proxy(server: Server) -> Iterator[FaultyProxy]:
    address = urlsplit(server.endpoint)
    with closing(FaultyProxy(str(address.hostname), int(address.port or 0))) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Directories of different shapes."""
    chance, made = random.Random(0), []
    for index, sizes in enumerate([[1, 0, 5000], [LARGE, 17], [100_000] * 30, [8 << 20]]):
        directory = tmp_path_factory.mktemp(f"source-{index}")
        (directory / "empty directory").mkdir()
        for number, size in enumerate(sizes):
            (directory / f"file {number} + 100%").write_bytes(chance.randbytes(size))
        made.append(directory)
    return made


def contents(directory: Path) -> dict[str, storage.Entry]:
    files = storage.scan_directory(directory)
    return {name: storage.checksum_file(path) for name, path in files.items() if not name.endswith("/")}


@contextmanager
def within(seconds: float, what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds, f"{what} took {time.monotonic() - began:.0f} s"


@pytest.mark.parametrize("seed", SEEDS)
def test_checkpoints_survive_random_faults(
    server: Server,
    proxy: FaultyProxy,
    sources: list[Path],
    tmp_path: Path,
    seed: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chance = random.Random(seed)
    mischief = Mischief(random.Random(seed))
    prefix = f"seed {seed}"
    block = {"type": "s3", "bucket": BUCKET, "prefix": prefix, "timeout": TIMEOUT}
    block |= {"endpoint_url": f"http://127.0.0.1:{proxy.port}"}
    saved: dict[str, Path] = {}
    doubtful: set[str] = set()
    with core.init(checkpoint_storage=block) as context:
        proxy.plan = mischief
        for step in range(6):
            what = chance.choice(["upload", "upload", "restore", "delete"]) if saved else "upload"
            story = f"seed {seed}, step {step}: {what}; {[fault.name for fault in mischief.seen]}"
            with within(LIMIT, story):
                try:
                    if what == "upload":
                        source = chance.choice(sources)
                        saved[context.checkpoint.upload(source, {"steps_completed": step})] = source
                    elif what == "restore":
                        storage_id = chance.choice(sorted(saved))
                        with context.checkpoint.restore_path(storage_id) as path:
                            assert contents(path) == contents(saved[storage_id]), story
                    else:
                        storage_id = chance.choice(sorted(saved))
                        doubtful.add(storage_id)
                        del saved[storage_id]
                        context.checkpoint.delete(storage_id)
                        doubtful.discard(storage_id)
                except DetError:
                    if not mischief.seen:
                        raise
        proxy.plan = lambda request: None
    plain = open_s3_storage(S3Config(bucket=BUCKET, prefix=prefix, endpoint_url=server.endpoint))
    expected = {storage_id: contents(source) for storage_id, source in saved.items()}
    seen = f"seed {seed}: {[fault.name for fault in mischief.seen]}"
    assert everything_visible_is_whole(plain, tmp_path / "before") >= saved.keys(), seen
    only_what_is_visible_is_left(server, plain, prefix, capsys)
    visible = everything_visible_is_whole(plain, tmp_path / "after")
    assert saved.keys() <= visible <= saved.keys() | doubtful, seen
    for storage_id, files in expected.items():
        assert contents(tmp_path / "after" / storage_id) == files, seen
    for storage_id in visible:  # so that any number of seeds fits into the server's memory and on the disk
        storage.delete_stored_files(plain, storage_id)
    shutil.rmtree(tmp_path)


def everything_visible_is_whole(manager: StorageManager, scratch: Path) -> set[str]:
    visible = {storage_id for storage_id in manager.stored() if storage.METADATA_FILE in manager.list(storage_id)}
    for storage_id in visible:
        storage.restore_checkpoint(manager, storage_id, scratch / storage_id)
    return visible


def only_what_is_visible_is_left(
    server: Server, manager: StorageManager, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["checkpoint", "gc", "--orphans", "--older-than", "0s"]) == 0, capsys.readouterr().err
    client, keys = server.client(), set()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix + "/"):
        keys |= {each["Key"] for each in page.get("Contents", ())}
    assert "Uploads" not in client.list_multipart_uploads(Bucket=BUCKET, Prefix=prefix + "/")
    held = {storage_id: manager.list(storage_id) for storage_id in manager.stored()}
    assert all(storage.METADATA_FILE in files for files in held.values())
    assert keys == {f"{prefix}/{storage_id}/{name}" for storage_id, files in held.items() for name in files}


SAVE = """
import os, sys
from det_core import core
endpoint, bucket, prefix, source = sys.argv[1:]
block = {"type": "s3", "bucket": bucket, "prefix": prefix, "endpoint_url": endpoint}
with core.init(checkpoint_storage=block) as context:
    print(context.checkpoint.upload(source, {"steps_completed": 1}), flush=True)
"""


class Executioner:
    """Plan that kills a process at its n-th request, before the server sees it or when its response is on the way."""

    def __init__(self, at: int, moment: Fault) -> None:
        self._at, self._moment, self._lock = at, moment, threading.Lock()
        self.requests: list[str] = []
        self.process: subprocess.Popen[str] | None = None

    def __call__(self, request: ProxiedRequest) -> Fault | None:
        with self._lock:
            self.requests.append(f"{request.method} {request.target}")
            if len(self.requests) != self._at:
                return None
        if self._moment is Fault.RESET:
            self.kill()
        else:
            threading.Timer(0.05, self.kill).start()
        return self._moment

    def kill(self) -> None:
        assert self.process
        self.process.send_signal(signal.SIGKILL)


def saving(proxy: FaultyProxy, source: Path, prefix: str, plan: Executioner) -> tuple[int, str]:
    proxy.plan = plan
    command = [sys.executable, "-c", SAVE, f"http://127.0.0.1:{proxy.port}", BUCKET, prefix, str(source)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        plan.process = process
        try:
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode in (0, -signal.SIGKILL), err
    return process.returncode, out.strip()


@pytest.mark.parametrize("moment", [Fault.RESET, Fault.LOSE])
def test_sigkill_at_any_request_of_a_save_leaves_no_partial_checkpoint(
    server: Server,
    proxy: FaultyProxy,
    sources: list[Path],
    tmp_path: Path,
    moment: Fault,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = sources[1]  # one file that is uploaded in parts, and a small one
    calm = Executioner(0, moment)
    assert saving(proxy, source, f"calm {moment.name}", calm)[0] == 0
    count = len(calm.requests)
    assert any("uploadId" in request for request in calm.requests)
    assert "metadata.json" in calm.requests[-1]
    # Each request has one of the two moments, and the last one is lost. In the soak, each has both.
    last, step = (count, 1) if is_soak() else (count - (moment is Fault.RESET), 2)
    for at in range(last, 0, -step):
        prefix = f"{moment.name} {at}"
        code, told = saving(proxy, source, prefix, Executioner(at, moment))
        assert code == -signal.SIGKILL
        proxy.plan = lambda request: None
        with open_store() as record:
            end_all_trials(record)
        plain = open_s3_storage(S3Config(bucket=BUCKET, prefix=prefix, endpoint_url=server.endpoint))
        visible = everything_visible_is_whole(plain, tmp_path / str(at))
        assert not told
        assert len(visible) == (at == count and moment is Fault.LOSE), calm.requests[at - 1]
        for storage_id in visible:
            assert contents(tmp_path / str(at) / storage_id) == contents(source)
        only_what_is_visible_is_left(server, plain, prefix, capsys)


def end_all_trials(record: TrackingStore) -> None:
    for experiment in record.experiments():
        for trial in record.trials(experiment.id):
            if not trial.state.final:
                record.set_trial_state(trial.id, State.ERROR)
