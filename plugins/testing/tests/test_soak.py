"""Seeds of random campaigns."""

from __future__ import annotations

import pytest
from det_testing import campaign_seeds, is_soak


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, range(4)),
        ("", range(4)),
        ("1", range(100)),
        ("40:60", range(40, 60)),
        ("90:300", range(90, 100)),
        ("200:300", range(0)),
    ],
)
def test_campaigns_run_the_chosen_seeds(value: str | None, expected: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DET_SOAK", raising=False)
    if value is not None:
        monkeypatch.setenv("DET_SOAK", value)
    assert campaign_seeds(few=4, many=100) == expected
    assert is_soak() is bool(value)


@pytest.mark.parametrize("value", ["0", "yes", "40", "40:", ":40", "60:40", "40:40", "-1:4", "1:2:3"])
def test_invalid_values_of_det_soak_are_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_SOAK", value)
    with pytest.raises(pytest.UsageError, match="FIRST:END .*got"):
        campaign_seeds(few=4, many=100)
