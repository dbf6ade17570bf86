"""`DistributedContext` from arguments and from the environments of launchers, and in real processes."""

from __future__ import annotations

import os
import re
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from det_core import core
from det_core.core import single_process

from .workers import Workers

ALONE = {"rank": 0, "size": 1, "local_rank": 0, "local_size": 1, "cross_rank": 0, "cross_size": 1}
TORCHRUN = dict(
    zip(
        ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
        "010101",
        strict=True,
    )
)
DEEPSPEED = dict(
    zip(("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"), "010101", strict=True)
)


def test_a_single_worker_exchanges_objects_with_itself() -> None:
    context = single_process()
    assert {name: getattr(context, name) for name in ALONE} == ALONE
    assert (context.get_rank(), context.get_local_rank(), context.get_size(), context.get_num_agents()) == (0, 0, 1, 1)
    mine = object()
    for gathered in (context.gather(mine), context.gather_local(mine)):
        assert gathered == [mine]
    assert context.allgather(mine)[0] is context.allgather_local(mine)[0] is mine
    assert context.broadcast(mine) is context.broadcast_local(mine) is context.channel().broadcast(mine) is mine
    assert context.broadcast_local() is None
    context.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank": 1}, "rank is 1 and size is 1; expected 0 <= rank < size"),
        ({"rank": -1}, "rank is -1"),
        ({"size": 0}, "rank is 0 and size is 0"),
        ({"local_rank": 2}, "local_rank is 2 and local_size is 1"),
        ({"cross_rank": 1}, "cross_rank is 1 and cross_size is 1"),
        ({"local_size": 2}, "local_size is 2 and size is 1"),
        ({"size": 2}, "1 of 2 workers are on this machine and cross_size is 1"),
        ({"size": 2, "local_size": 2, "cross_size": 2}, "2 of 2 workers are on this machine and cross_size is 2"),
        (
            {"size": 2, "local_size": 2, "rank": 1},
            "rank 1 is local_rank 0 of cross_rank 0; expected rank 0, and only it",
        ),
        ({"size": 2, "local_size": 2, "local_rank": 1}, "rank 0 is local_rank 1 of cross_rank 0"),
        ({"size": 2, "cross_size": 2}, "pass chief_ip, the address of the machine of rank 0"),
        ({"pub_port": 0}, "pub_port + port_offset is 0; expected 1 to 65535"),
        ({"port_offset": 60_000}, "pub_port + port_offset is 72360"),
        ({"timeout": 0}, "timeout is 0; expected seconds > 0, or None"),
    ],
)
def test_contradictory_arguments_raise_value_errors(changes: dict[str, Any], message: str) -> None:
    with patch.dict(os.environ, {"DET_CHIEF_IP": "127.0.0.1"}), pytest.raises(ValueError, match=re.escape(message)):
        core.DistributedContext(**{**ALONE, **changes})


@pytest.mark.parametrize(
    ("maker", "environ", "command"),
    [("from_torch_distributed", TORCHRUN, "torchrun"), ("from_deepspeed", DEEPSPEED, "deepspeed")],
)
def test_ranks_are_read_from_the_launchers_environment(maker: str, environ: dict[str, str], command: str) -> None:
    make = getattr(core.DistributedContext, maker)
    with patch.dict(os.environ, environ, clear=True):
        context = make()
        assert {name: getattr(context, name) for name in ALONE} == ALONE
        assert isinstance(make(chief_ip="10.0.0.1"), core.DistributedContext)
    for name in environ:
        incomplete = {key: value for key, value in environ.items() if key != name}
        with (
            patch.dict(os.environ, incomplete, clear=True),
            pytest.raises(ValueError, match=f"lacks {name}; start the workers with `{command}"),
        ):
            make()
    with patch.dict(os.environ, clear=True), pytest.raises(ValueError, match=", ".join(environ)):
        make()
    with patch.dict(os.environ, {**environ, "RANK": "first"}), pytest.raises(ValueError, match="RANK is 'first'"):
        make()


def test_ranks_are_read_from_horovod() -> None:
    hvd = SimpleNamespace(**{name: lambda number=number: number for name, number in ALONE.items()})
    context = core.DistributedContext.from_horovod(hvd)
    assert {name: getattr(context, name) for name in ALONE} == ALONE


def test_the_chiefs_address_comes_from_the_argument_or_the_environment() -> None:
    machines = {**TORCHRUN, "WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "2"}
    with patch.dict(os.environ, machines, clear=True):
        with pytest.raises(ValueError, match="pass chief_ip"):
            core.DistributedContext.from_torch_distributed()
        with pytest.raises(ValueError, match="DET_COMM_KEY"):
            core.DistributedContext.from_torch_distributed("127.0.0.1")
        os.environ["DET_CHIEF_IP"] = "127.0.0.1"
        with pytest.raises(ValueError, match="DET_COMM_KEY"):
            core.DistributedContext.from_torch_distributed()


@pytest.mark.integration
@pytest.mark.parametrize("size", [1, 4])
def test_every_method_works_in_real_processes(workers: Workers, size: int) -> None:
    said = workers.run(
        size,
        """
        channel = distributed.channel()
        assert (distributed.get_rank(), distributed.get_local_rank()) == (rank, distributed.local_rank)
        assert (distributed.get_size(), distributed.get_num_agents()) == (size, 1)
        everybody = list(range(size))
        for stuff in (None, {"loss": 0.5}, bytes(1_000_000)):
            expected = [(each, stuff) for each in everybody]
            for context in (distributed, channel):
                for suffix in ("", "_local"):
                    assert getattr(context, "allgather" + suffix)((rank, stuff)) == expected
                    assert getattr(context, "gather" + suffix)((rank, stuff)) == (expected if rank == 0 else None)
                    assert getattr(context, "broadcast" + suffix)((rank, stuff)) == (0, stuff)
        assert distributed.broadcast_local() is None
        distributed.close()
        distributed.close()
        print("done")
        """,
    )
    assert said == ["done\n"] * size


@pytest.mark.integration
def test_the_chief_receives_notices_outside_collectives(workers: Workers) -> None:
    said = workers.run(
        3,
        """
        import threading
        heard = threading.Event()
        if rank == 0:
            begin = time.monotonic()
            distributed._listen(lambda text: text == "leave" and heard.set())
            assert heard.wait(60)
            print("heard")
        elif rank == 2:
            signal.signal(signal.SIGTERM, lambda *_: None)
            os.kill(os.getpid(), signal.SIGTERM)
            distributed._notify("leave")
        distributed.allgather(None)
        """,
    )
    assert said == ["heard\n", "", ""]
