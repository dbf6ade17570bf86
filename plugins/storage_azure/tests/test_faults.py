"""Requests that fail, servers that are away, uploads that are cut off, and trials that are killed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from azure.storage.blob import ContainerClient
from det_storage_azure._config import AzureConfig
from det_storage_azure._container import AzureContainer, open_azure_storage
from det_testing import campaign_seeds
from det_testing.proxy import Fault, FaultyProxy, ProxiedRequest

from det_core import storage
from det_core.errors import DetError, StorageError
from det_core.interfaces.object_store import TransientError
from tests.killed_trial import train_with_kills

from .azurite import ACCOUNT, KEY, Azurite, running_azurite

pytestmark = pytest.mark.integration

Make = Callable[..., AzureConfig]
LARGE = (16 << 20) + 1
"""Size in bytes of a file that is stored in three blocks."""


@pytest.fixture
def proxy(azurite: Azurite) -> Iterator[FaultyProxy]:
    with closing(FaultyProxy("127.0.0.1", azurite.port)) as between:
        yield between


def url(proxy: FaultyProxy) -> str:
    return f"http://127.0.0.1:{proxy.port}/{ACCOUNT}"


@pytest.mark.campaign
@pytest.mark.parametrize("seed", campaign_seeds(few=1, many=50))
def test_checkpoints_survive_random_faults(make_config: Make, proxy: FaultyProxy, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    files = {}
    for number, size in enumerate([0, 1, 5000, LARGE, *[100_000] * 10]):
        files[f"sub/file {number} + 100%"] = tmp_path / f"source-{number}"
        files[f"sub/file {number} + 100%"].write_bytes(chance.randbytes(size))
    share, faults = chance.choice([0.02, 0.1, 0.3]), [fault for fault in Fault if fault is not Fault.STALL]
    proxy.plan = lambda request: chance.choice(faults) if chance.random() < share else None
    storage_id = f"seed-{seed}"
    faulty, direct = (
        open_azure_storage(make_config(account_url=url(proxy), timeout=2)),
        open_azure_storage(make_config()),
    )
    try:
        storage.save_checkpoint(faulty, storage_id, files, {"seed": seed})
        is_saved = True
    except DetError:
        is_saved = "metadata.json" in direct.list(storage_id)  # only its response may have been lost
    if is_saved:
        storage.restore_checkpoint(direct, storage_id, tmp_path / "direct")
        assert all((tmp_path / "direct" / name).read_bytes() == file.read_bytes() for name, file in files.items())
        storage.restore_checkpoint(faulty, storage_id, tmp_path / "faulty")
    proxy.plan = lambda request: None
    faulty.delete(storage_id, list(direct.list(storage_id)))
    faulty.abort_uploads(storage_id, lambda path: True)
    assert direct.stored() == {}


@pytest.mark.parametrize("part", ["comp=blocklist", "comp=block&", "PUT"])
def test_a_request_whose_response_was_lost_is_repeated(
    make_config: Make, proxy: FaultyProxy, tmp_path: Path, part: str
) -> None:
    pending = [Fault.LOSE]

    def once(request: ProxiedRequest) -> Fault | None:
        return pending.pop() if pending and part in f"{request.method} {request.target}" else None

    proxy.plan = once
    manager = open_azure_storage(make_config(account_url=url(proxy)))
    (tmp_path / "large").write_bytes(random.Random(0).randbytes(LARGE))
    manager.put("one", "large", tmp_path / "large")
    manager.get("one", "large", tmp_path / "back")
    assert pending == []
    assert (tmp_path / "back").read_bytes() == (tmp_path / "large").read_bytes()


def test_blocks_of_killed_uploads_are_found_and_removed(make_config: Make, container: ContainerClient) -> None:
    client, manager = AzureContainer(make_config()), open_azure_storage(make_config())
    client.put_part("runs/one/large", client.begin("runs/one/large"), 0, b"x", 0)
    assert manager.list("one") == {}
    assert manager.stored().keys() == {"one"}
    manager.abort_uploads("one", lambda path: path != "large")
    assert manager.stored().keys() == {"one"}
    manager.abort_uploads("one", lambda path: path == "large")
    assert manager.stored() == {}
    assert [blob.name for blob in container.list_blobs(include=["uncommittedblobs"])] == []


def test_abort_leaves_a_blob_that_exists(make_config: Make) -> None:
    client = AzureContainer(make_config())
    client.put("runs/one/file", b"old", 0)
    upload = client.begin("runs/one/file")
    client.put_part("runs/one/file", upload, 0, b"x", 0)
    client.abort("runs/one/file", upload)
    assert client.get("runs/one/file", 0, 10) == b"old"


def test_a_server_that_is_away_or_frozen_is_transient(make_config: Make, tmp_path: Path) -> None:
    with running_azurite(tmp_path) as own:
        client = AzureContainer(make_config(account_url=own.account_url)).with_timeout(0.5)
        own.stop()
        with pytest.raises(TransientError, match="cannot reach the server"):
            client.put("key", b"x", 0)
        own.start()
        with own.frozen():
            began = time.monotonic()
            with pytest.raises(TransientError, match="cannot reach the server"):
                client.put("key", b"x", 0)
            assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"credential": KEY.replace("E", "F", 1)},
            "the credential was refused|permission denied; correct the credential",
        ),
        ({"credential": "hunter2"}, "the credential is malformed"),
        (
            {"account_url": None, "credential": None, "connection_string": "AccountName=me;hunter2"},
            "the connection_string or credential is malformed",
        ),
        ({"credential": "sv=2020&sig=hunter2"}, "refused|permission"),
        ({"container": "no-such-container"}, "there is no container 'no-such-container'; create it"),
    ],
)
def test_a_refused_request_says_why_and_shows_no_secret(
    make_config: Make, options: dict[str, Any], expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config(**options)
    with pytest.raises(StorageError, match=expected) as refused:
        open_azure_storage(config).list("one")
    assert "hunter2" not in str(refused.value) + caplog.text
    assert KEY not in str(refused.value) + caplog.text
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_trial_that_is_killed_resumes_from_its_checkpoints(
    make_config: Make, azurite: Azurite, container: ContainerClient, tmp_path: Path, kills: int
) -> None:
    connection = (
        f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={azurite.account_url};"
    )
    block = {"type": "azure", "container": container.container_name, "connection_string": connection}
    train_with_kills(tmp_path, {}, kills, checkpoint_storage=block)
    assert any(blob.name.endswith("/metadata.json") for blob in container.list_blobs())
    recorded = [path for path in (tmp_path / "det-home").rglob("*") if path.is_file() and "secrets" not in path.parts]
    assert recorded
    assert not any(KEY.encode() in path.read_bytes() for path in recorded)
