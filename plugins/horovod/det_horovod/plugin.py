"""Plugin module of det-horovod. Importing it imports neither Horovod nor a framework."""

from __future__ import annotations

from collections.abc import Iterator

import det_core
from det_core.specs import BackendSpec


@det_core.hookimpl
def det_backends() -> Iterator[BackendSpec]:
    yield BackendSpec(
        name="horovod",
        target="det_horovod._backend:Horovod",
        adapters={
            "pytorch": "det_horovod._torch:HorovodTorch",
            "estimator": "det_horovod._tensorflow:HorovodTensorFlow",
            "keras": "det_horovod._tensorflow:HorovodTensorFlow",
        },
        install="pip install det-horovod, then python -m det_horovod.build",
        elastic=True,
        prepare=("det_horovod._launcher",),
    )
