"""Several slots train what one slot trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.integration


def losses(job: Any) -> list[float]:
    return [row["loss"] for _, _, rows in job.metrics("training") for row in rows]


def assert_close(one: Any, several: Any, tolerance: float) -> None:
    weights = [job.state()["models_state_dict"] for job in (several, one)]
    torch.testing.assert_close(*weights, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(losses(several), losses(one), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
    ("slots", "style", "aggregation"),
    [
        (2, "framework", 1),
        (2, "user", 2),
        pytest.param(4, "framework", 2, marks=pytest.mark.slow),
        pytest.param(4, "user", 1, marks=pytest.mark.slow),
    ],
)
def test_several_slots_do_what_one_does(
    slots: int, style: str, aggregation: int, make_job: Callable[..., Any], bits: Callable[[Any], Any]
) -> None:
    keys = {"optimizations": {"aggregation_frequency": aggregation}}
    one, several = make_job(style, **keys).train_here(), make_job(style, **keys).succeed(slots)
    assert len(losses(one)) == 14
    assert_close(one, several, 1e-5)

    at_start = [job.metrics("validation")[0] for job in (one, several)]
    assert (at_start[0][0], at_start[0][1]["seen"]) == (0, 11)
    assert bits(at_start[0]) == bits(at_start[1]), "before training, validation is the same to the last bit"

    steps, metrics, rows = several.metrics("training")[0]
    assert (steps, metrics["seen"]) == (3, 3 * 8), "a reducer gets the records of all slots"
    assert [row["rank"] for row in rows] == [(slots - 1) / 2] * 3, "numbers are means over slots"
    assert [row["at"] for row in rows] == [[0, 0], [0, 1], [0, 2]], "what is no number is the chief's"


def test_gradients_travel_as_float16(make_job: Callable[..., Any]) -> None:
    job = make_job("user", data={"compression": True})
    one, two = make_job("user").train_here(), job.succeed(2)
    with pytest.raises(AssertionError):
        assert_close(one, two, 1e-6)
    assert_close(one, two, 1e-2)

    assert [steps for steps, *_ in two.metrics("training")] == [3, 4, 6, 7, 8, 9, 12, 14], "the chief alone reports"
    for row in two.checkpoints():
        assert all(f"rank {rank} knows of {row.uuid}" in two.output() for rank in range(2))
