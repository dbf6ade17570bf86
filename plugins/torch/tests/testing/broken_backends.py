"""Backends whose adapters have one defect each, with the test that must notice it.

Like every plugin, this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator

import det_core
from det_core.specs import BackendSpec

CAUGHT_BY = {
    "Sums": "two_slots_train_what_one_does[one model]",
    "StepsAlone": "two_slots_train_what_one_does[one model]",
    "KeepsFirstWeights": "two_slots_train_what_one_does[one model]",
    "AlwaysCompresses": "two_slots_train_what_one_does[one model]",
    "NeverCompresses": "gradients_travel_as_float16",
    "ExchangesTwice": "two_slots_train_what_one_does[adversaries]",
    "ForgetsBuffers": "all_slots_validate_the_chiefs_model",
    "HangsInTheEnd": "the_chief_alone_reports_and_all_know_of_checkpoints",
}


@det_core.hookimpl
def det_backends() -> Iterator[BackendSpec]:
    for name in CAUGHT_BY:
        yield BackendSpec(
            name=name,
            target="det_ring:Ring",
            config_model="det_ring:RingConfig",
            adapters={"pytorch": f"broken_adapters:{name}"},
        )
