"""Base class of all compliance suites, which prevents tests from being overridden by accident."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from det_core.similar_names import suggest_name


class ComplianceSuite:
    """Base class of compliance suites. A test that one class defines cannot be redefined by another."""

    expected_failures: ClassVar[Mapping[str, str]] = {}
    """Names of tests that this implementation cannot pass, or of single cases as pytest writes them
    (``test_damage_is_found[flipped]``), mapped to reasons. These tests still run, and must fail."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        tests: dict[str, type] = {}
        for definer in reversed(cls.__mro__):
            for name in vars(definer):
                if name.startswith("test_") and tests.setdefault(name, definer) is not definer:
                    raise TypeError(
                        f"{definer.__name__} redefines {name} of {tests[name].__name__}, which would disable that "
                        f"test; rename yours, or set expected_failures = {{{name!r}: 'why it cannot pass'}}"
                    )
        for name, reason in cls.expected_failures.items():
            test = name.partition("[")[0]
            if test not in tests:
                raise TypeError(
                    f"{cls.__name__}.expected_failures names {name!r}, which is not one of its tests"
                    + suggest_name(test, tests)
                )
            if not reason.strip():
                raise TypeError(
                    f"{cls.__name__}.expected_failures has no reason for {name!r}; write why it cannot pass"
                )

    @pytest.fixture(autouse=True)
    def _expect_failure(self, request: pytest.FixtureRequest) -> None:
        for name in {request.function.__name__, request.node.name} & self.expected_failures.keys():
            request.applymarker(pytest.mark.xfail(reason=self.expected_failures[name], strict=True))
