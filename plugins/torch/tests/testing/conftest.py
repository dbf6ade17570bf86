from __future__ import annotations

import pytest

from plugins.testing.tests.defects import drop_other_cases


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    drop_other_cases(items)
