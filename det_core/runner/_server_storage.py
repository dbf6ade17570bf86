"""Checkpoint storage of experiments that this machine trains and a det server records."""

from __future__ import annotations

import logging
from contextlib import closing

from det_core.config import ExperimentConfig, parse_config
from det_core.core import open_storage_block
from det_core.core.recorded_storage import describe_storage
from det_core.errors import DetError
from det_core.home import default_storage
from det_core.runner._background import without_own_directory
from det_core.storage import check_storage, is_bucket
from det_core.tracking.remote import ServerConnection

_log = logging.getLogger("det.runner")


def use_server_storage(config: ExperimentConfig, url: str) -> ExperimentConfig:
    """Return a config with the default storage of a server, if the config names none and this machine can use it.

    A server offers buckets only, without its own credentials.

    Args:
        config: the config.
        url: URL of the server.
    """
    document = without_own_directory(config.dump())
    block = document["checkpoint_storage"] or {}
    if "type" in block:
        return config
    with closing(ServerConnection(url)) as server:
        offered = server.get("/api/info").get("checkpoint_storage")
    if not offered:
        return config
    try:
        check_storage(open_storage_block(offered))
    except DetError as error:
        _log.warning(
            "this machine cannot use the default storage of %s (%s): %s", url, describe_storage(offered), error
        )
        return config
    return parse_config({**document, "checkpoint_storage": {**offered, **block}})


def explain_storage(config: ExperimentConfig, url: str) -> str:
    """Say where the checkpoints of an experiment will be, and who can read them.

    Args:
        config: the config.
        url: URL of the server that records the experiment.
    """
    block = config.dump()["checkpoint_storage"] or default_storage()
    if is_bucket(open_storage_block(block)):
        return f"Checkpoints go to {describe_storage(block)}, for whoever has credentials of it"
    return (
        f"Checkpoints stay on this machine ({describe_storage(block)}): others see their records at {url}, and cannot "
        "read the files. To share them, name a bucket in checkpoint_storage"
    )
