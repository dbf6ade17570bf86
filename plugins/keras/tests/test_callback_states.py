"""States of callbacks in the JSON of a checkpoint."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from det_keras._callback_states import pack_state, unpack_state

STATE = {
    "best": np.float32(0.25),
    "counts": np.arange(6, dtype=np.int16).reshape(2, 3),
    "seen": {1, (2, 3)},
    "names": frozenset({"a"}),
    3: b"\x00\xff",
    "nested": [{"det.type": "tuple"}, ({"x": None}, True, 1.5)],
}


def test_states_are_equal_after_a_checkpoint() -> None:
    restored = unpack_state(json.loads(json.dumps(pack_state(STATE))))
    arrays = restored.pop("counts"), STATE["counts"]
    assert restored == {name: value for name, value in STATE.items() if name != "counts"}
    assert type(restored["best"]) is np.float32
    np.testing.assert_array_equal(*arrays)
    assert arrays[0].dtype == np.int16
    arrays[0][0] = 7  # it is writable


@pytest.mark.parametrize("refused", [object(), [np.array(["text"])], {"a": np.datetime64(1, "s")}, {"f": len}])
def test_other_types_are_named(refused: Any) -> None:
    with pytest.raises(TypeError, match="it contains .*; expected None, numbers, strings"):
        pack_state(refused)
