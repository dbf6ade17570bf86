"""Conversion of reported values to JSON-compatible copies."""

from __future__ import annotations

import decimal
import enum
import fractions
import logging
import math
import subprocess
import sys
from collections import OrderedDict
from datetime import date, datetime, timezone
from types import MappingProxyType
from typing import Any

import pytest

from det_core.core import _metric_conversion
from det_core.core._metric_conversion import MAX_COPY_SIZE, MetricConverter
from det_core.interfaces.records import MAX_METRICS

np = pytest.importorskip("numpy")


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 3


class TensorFlowLike:
    def numpy(self) -> Any:
        return np.array([[1.0, 2.0]])


def nested(depth: int) -> Any:
    value: Any = 0.5
    for _ in range(depth):
        value = [value]
    return value


CONVERTED: list[tuple[str, Any, Any]] = [
    ("float", 0.1, 0.1),
    ("int beyond 64 bits", 2**70, 2**70),
    ("bool", True, True),
    ("str", "a\0é", "a\0é"),
    ("None", None, None),
    ("NaN", math.nan, math.nan),
    ("infinity", -math.inf, -math.inf),
    ("enum", Color.RED, "RED"),
    ("enum that is an int", Level.LOW, "LOW"),
    ("datetime", datetime(2026, 1, 2, 3, tzinfo=timezone.utc), "2026-01-02T03:00:00+00:00"),
    ("date", date(2026, 1, 2), "2026-01-02"),
    ("fraction", fractions.Fraction(1, 4), 0.25),
    ("numpy float64", np.float64(0.1), 0.1),
    ("numpy float32", np.float32(0.5), 0.5),
    ("numpy float16", np.float16(0.5), 0.5),
    ("numpy long double", np.longdouble(0.5), 0.5),
    ("numpy NaN", np.float32("nan"), math.nan),
    ("numpy int", np.uint8(200), 200),
    ("numpy bool", np.bool_(True), True),
    ("numpy str", np.str_("x"), "x"),
    ("array of no dimension", np.array(0.5), 0.5),
    ("array of one element", np.array([[0.5]]), 0.5),
    ("array", np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    ("empty array", np.array([]), []),
    ("array of objects", np.array([Color.RED, 1], dtype=object), ["RED", 1]),
    ("array of TensorFlow", TensorFlowLike(), [[1.0, 2.0]]),
    ("nested", {"a": [1, (2, {"b": np.int64(3)})]}, {"a": [1, [2, {"b": 3}]]}),
    ("other mappings", MappingProxyType({"x": OrderedDict(y=1)}), {"x": {"y": 1}}),
    ("names that are numbers", {0: 0.5, np.int64(1): 0.25, 0.5: 1}, {"0": 0.5, "1": 0.25, "0.5": 1}),
    ("names that are enums", {Color.RED: 1}, {"RED": 1}),
    ("fifty levels", nested(50), nested(50)),
]

REFUSED: list[tuple[str, Any, type[Exception], str]] = [
    ("set", {1}, TypeError, "metric 'm' is a set; expected a number, a string, an array"),
    ("complex", 1j, TypeError, "metric 'm' is a complex"),
    ("numpy complex", np.array([1j, 2]), TypeError, "metric 'm' is a complex"),
    ("decimal", decimal.Decimal(1), TypeError, "metric 'm' is a decimal.Decimal"),
    ("object inside", [1, {"x": object()}], TypeError, "metric 'm' is a object"),
    ("bytes inside", [b"x"], TypeError, "metric 'm' is a bytes"),
    ("too deep", nested(51), TypeError, "metric 'm' is nested deeper than 50 levels"),
    ("name that is a tuple", {(1, 2): 0}, TypeError, r"metric 'm' has the name \(1, 2\); expected a string"),
    ("name that is a bool", {True: 0}, TypeError, "metric 'm' has the name True"),
    ("names that become one", {1: 0, "1": 0}, ValueError, "metric 'm' has two names that both become '1' in JSON"),
]
TOO_LARGE: list[tuple[str, Any]] = [
    ("too many numbers", [0.5] * (MAX_COPY_SIZE + 1)),
    ("too much text", "x" * (MAX_COPY_SIZE + 1)),
    ("a huge array", np.broadcast_to(np.float32(0), (10**6, 10**6))),
]


@pytest.mark.parametrize(("value", "expected"), [row[1:] for row in CONVERTED], ids=[row[0] for row in CONVERTED])
def test_values_are_converted_to_json_types(value: Any, expected: Any) -> None:
    metrics, batches = MetricConverter().copy({"m": value, "other": 1}, [{"m": value}])
    assert repr(metrics) == repr({"m": expected, "other": 1})
    assert repr(batches) == repr([{"m": expected}])


@pytest.mark.parametrize(("value", "error", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_unsupported_values_raise_an_error_with_the_name(value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        MetricConverter().copy({"fine": 1, "m": value})
    with pytest.raises(error, match=message):
        MetricConverter().copy({}, [{"fine": 1}, {"m": value}])


@pytest.mark.integration
def test_tensors_are_converted() -> None:
    torch = pytest.importorskip("torch")
    given = {
        "scalar": torch.tensor(0.5, requires_grad=True),
        "one": torch.ones(1, 1),
        "bfloat16": torch.tensor(0.5, dtype=torch.bfloat16),
        "half list": torch.tensor([0.5, 0.25], dtype=torch.bfloat16),
        "int": torch.tensor(3),
        "bool": torch.tensor(True),
        "matrix": torch.nn.Parameter(torch.zeros(2, 2)),
        "nested": {"x": [torch.tensor(1)]},
    }
    assert MetricConverter().copy(given)[0] == {
        "scalar": 0.5,
        "one": 1.0,
        "bfloat16": 0.5,
        "half list": [0.5, 0.25],
        "int": 3,
        "bool": True,
        "matrix": [[0.0, 0.0], [0.0, 0.0]],
        "nested": {"x": [1]},
    }
    with pytest.raises(TypeError, match=r"metric 'm' is a torch.Tensor whose item\(\) failed"):
        MetricConverter().copy({"m": torch.ones(1, device="meta")})


def test_the_result_is_a_copy() -> None:
    flat, deep, array, batches = {"a": 1.0}, {"a": [1.0]}, {"a": np.zeros(2)}, [{"a": 1.0}]
    copies = [MetricConverter().copy(metrics, batches) for metrics in (flat, deep, array)]
    flat["a"] = deep["a"][0] = array["a"][0] = batches[0]["a"] = 2.0
    batches.append({})
    assert copies == [({"a": 1.0}, [{"a": 1.0}]), ({"a": [1.0]}, [{"a": 1.0}]), ({"a": [0.0, 0.0]}, [{"a": 1.0}])]


def test_bytes_are_omitted_with_one_warning_for_each_name(caplog: pytest.LogCaptureFixture) -> None:
    values = MetricConverter()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert values.copy({"a": b"x", "b": bytearray(b"y"), "c": np.bytes_(b"z"), "d": 1})[0] == {"d": 1}
    assert [record.message.split(" is bytes")[0] for record in caplog.records] == [
        "metric 'a'",
        "metric 'b'",
        "metric 'c'",
    ]


@pytest.mark.parametrize("metrics", [[("a", 1)], 0.5, None])
def test_metrics_must_be_a_mapping(metrics: Any) -> None:
    with pytest.raises(TypeError, match=r"metrics are a .*; expected a mapping such as \{'loss': 0.5\}"):
        MetricConverter().copy(metrics)


@pytest.mark.parametrize("value", [row[1] for row in TOO_LARGE], ids=[row[0] for row in TOO_LARGE])
def test_what_is_too_large_is_left_out_and_named_once(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    values = MetricConverter()
    for _ in range(2):
        assert values.copy({"loss": 1, "large": value}, [{"loss": 1, "large": [2]}]) == (
            {"loss": 1},
            [{"loss": 1, "large": [2]}],
        )
        assert values.copy({"large": 3}, [{"loss": 1, "large": value}]) == ({"large": 3}, [{"loss": 1}])
    [record] = caplog.records
    assert record.message.startswith("metric 'large' is left out, because its report exceeds the 150,000 numbers")
    with pytest.raises(ValueError, match="metric 'large' exceeds the 1,000,000 numbers"):
        values.copy_all({"large": value})


def test_the_limits_are_those_of_the_metrics_and_of_all_batches(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_metric_conversion, "MAX_REPORT_SIZE", 1000)
    monkeypatch.setattr(_metric_conversion, "MAX_COPY_SIZE", 1000)
    many = {f"metric {number}": 0.5 for number in range(100)}
    assert MetricConverter().copy(many)[0] == many
    assert MetricConverter().copy({}, [many] * 10)[1] == [many] * 10
    assert MetricConverter().copy(many, [*[many] * 8, {**many, "none": None}])[1] == [
        *[many] * 8,
        many | {"none": None},
    ]
    assert not caplog.records
    rows = [{"map": [0.5] * 90, "loss": 0.5}] * 11  # the loss of the last row is what does not fit
    assert MetricConverter().copy(many, rows) == (many, [{"loss": 0.5}] * 11)
    assert MetricConverter().copy(many, [{"number": 1, "text": "x" * 1000}]) == (many, [{"number": 1}])
    assert len(MetricConverter().copy({str(number): 0 for number in range(1001)})[0]) == 1000
    metrics, rows = MetricConverter().copy({"note": "x" * 1000}, [many] * 11)
    assert (metrics, list(map(len, rows or ()))) == ({"note": "x" * 1000}, [90] * 11)
    assert [record.message.split(" is left out")[0] for record in caplog.records] == [
        "metric 'map' of each batch",
        "metric 'text' of each batch",
        "metric '0'",
        *(f"metric 'metric {number}' of each batch" for number in range(10)),
    ]


def test_a_report_is_read_twice_at_most_however_much_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted(dict[str, Any]):
        reads = 0

        def items(self) -> Any:
            self.reads += 1
            return super().items()

    monkeypatch.setattr(_metric_conversion, "MAX_REPORT_SIZE", 1000)
    texts = Counted({f"text {number}": "x" * (number + 1) for number in range(300)})
    assert MetricConverter().copy(texts)[0] == {f"text {number}": "x" * (number + 1) for number in range(44)}
    assert texts.reads == 2


def test_metrics_after_the_first_twenty_thousand_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """The tracking store would refuse the report as a whole."""
    values, most = MetricConverter(), {f"metric {number}": 0.5 for number in range(MAX_METRICS)}
    for more in ({"extra": 1, "other": 2}, {"extra": 3}):
        assert values.copy({**most, **more})[0] == most
    [record] = caplog.records
    assert record.message.startswith("metric 'extra' and all after it are left out, because a report may have 20,000")


@pytest.mark.integration
def test_no_framework_is_imported() -> None:
    module = MetricConverter.__module__
    code = f"import sys; import {module}; print({{'numpy', 'torch', 'tensorflow'}} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"": 1.0}, "metric '' has no name; expected one such as 'loss'"),
        ({"a\0b": 1.0}, "has a NUL or half of a surrogate pair"),
        ({"a\ud800b": 1.0}, "has a NUL or half of a surrogate pair"),
        ({"nested": {"a\0b": 1.0}}, "metric 'nested' .* has a NUL"),
    ],
)
def test_names_that_no_database_can_store_are_rejected(metrics: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MetricConverter().copy(metrics)
    with pytest.raises(ValueError, match=message):
        MetricConverter().copy({}, [metrics])
