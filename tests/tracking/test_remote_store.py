"""Encoding of the calls of remote tracking stores. The other tests of this directory cover the methods."""

from __future__ import annotations

import base64
import gzip
import inspect
import json
import math
import threading
import tracemalloc
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from det_core import errors
from det_core.errors import CallTooLarge, MetricsConflict, RecordNotFound, StoreBusy, TrackingError, UnwritableText
from det_core.interfaces.model_records import ModelSort
from det_core.interfaces.records import LONGEST_BRIEF, CheckpointState, MetricsReport, Run, Shortened, State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store
from det_core.tracking._deferred_json import DeferredJson
from det_core.tracking._outage import Unavailable
from det_core.tracking.remote import _calls, _codecs, answer_call, open_remote_store
from det_core.tracking.remote._calls import METHODS, dump_error, find_method, load_values
from det_core.tracking.remote._codecs import CodecMismatch, codec_of

TIME = datetime(2026, 2, 3, 4, 5, 6, 789012, tzinfo=timezone(timedelta(hours=-3, minutes=-30)))
REPORT = MetricsReport(trial_id=1, run_id=2, group="é", steps_completed=3, metrics={"loss": math.nan}, time=TIME)


@pytest.fixture
def direct(tmp_path: Path) -> Iterator[TrackingStore]:
    with open_store(f"sqlite:///{tmp_path}/det.db") as store:
        yield store


@pytest.fixture
def remote(direct: TrackingStore) -> TrackingStore:
    return open_remote_store(partial(answer_call, direct), url=direct.url)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_of_the_interface_can_be_called(name: str) -> None:
    method = find_method(name)
    kind = type(open_remote_store(lambda method, body: b"", url=""))
    if method.is_property:
        assert isinstance(getattr(kind, name), property)
    else:
        assert inspect.signature(getattr(kind, name)) == inspect.signature(getattr(TrackingStore, name))


def test_properties_are_read_from_the_other_side(remote: TrackingStore, direct: TrackingStore) -> None:
    assert remote.cluster_id == direct.cluster_id


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, 2**200),
        (float, -0.0),
        (float, 5e-324),
        (float, math.nan),
        (float, -math.inf),
        (float, 3),
        (float | None, None),
        (str, "\ud83d\ude00 \0 \U0001f600 \"'\\\n"),
        (bytes, bytes(range(256))),
        (datetime | None, TIME),
        (str | int, 12),
        (str | int, "12"),
        (State | None, State.STOPPING_KILLED),
        (Sequence[CheckpointState], [CheckpointState.ERROR]),
        (ModelSort, ModelSort.CREATION_TIME),
        (tuple[float, int, int] | None, (math.inf, 1, 2)),
        (tuple[int, Any] | None, (1, {"a": [None, {"b": math.nan}]})),
        (set[str], {"a"}),
        (list[int], []),
        (dict[int, str], {1: "a", -2: ""}),
        (dict[int, list[tuple[int, float]]], {1: [(2, 0.5)], 3: []}),
        (dict[str, Mapping[str, Any]], {"a": {"b": 1}}),
        (Mapping[str, int], {"a/": 2**40}),
        (Mapping[str, Any], {"z": [1.5, None, {"é": math.inf}], "a": "NaN"}),
        (Mapping[str, Any], {1: 2.5, None: True}),
        (Mapping[str, Any] | None, {}),
        (Any, None),
        (Any, [{"a": True}]),
        (MetricsReport, REPORT),
        (list[Run], [Run(trial_id=1, run_id=2, allocation_id="a", early_exit="x")]),
    ],
)
def test_values_are_decoded_as_they_were(hint: Any, value: Any) -> None:
    codec = codec_of(hint)
    text = codec.dump(value).encode(errors="surrogatepass").decode(errors="surrogatepass")
    assert repr(codec.load(json.loads(text))) == repr(value)


def test_clients_know_what_lists_leave_out(remote: TrackingStore) -> None:
    large = {"data": "x" * LONGEST_BRIEF}
    experiments = [remote.create_experiment(config=config).id for config in (large, {"_det": 1})]
    for hparams in (large, {"a": 1}):
        remote.create_trial(experiments[0], hparams=hparams, seed=0)
    trials = [one.trial.hparams for one in remote.trial_results(experiments[0], brief=True)]
    configs = [one.config for one in remote.experiments_by_id(experiments, brief=True)]
    assert trials == [{}, {"a": 1}] and configs == [{}, {"_det": 1}]
    assert [isinstance(one, Shortened) for one in (*trials, *configs)] == [True, False, True, False]


@pytest.mark.parametrize(
    ("hint", "value", "decoded"),
    [
        (Sequence[str], ("a",), ["a"]),
        (Collection[int], {5}, [5]),
        (Sequence[State], [State.ACTIVE, State.PAUSED, State.ACTIVE], [State.ACTIVE, State.PAUSED]),
        (Mapping[str, Any], DeferredJson('{"a": [1]}'), {"a": [1]}),
        (Mapping[str, Any], {"a": (1, 2)}, {"a": [1, 2]}),
        (State, "ACTIVE", State.ACTIVE),
        (bytes, memoryview(b"a"), b"a"),
        (int, True, 1),
    ],
)
def test_values_of_similar_types_become_those_of_the_annotation(hint: Any, value: Any, decoded: Any) -> None:
    codec = codec_of(hint)
    assert repr(codec.load(json.loads(codec.dump(value)))) == repr(decoded)


def test_a_time_without_a_zone_is_that_of_this_host() -> None:
    codec, local = codec_of(datetime), datetime(2026, 7, 1, 12)
    assert codec.load(json.loads(codec.dump(local))) == local.astimezone(timezone.utc)


def test_an_iterator_is_decoded_as_an_iterator() -> None:
    codec = codec_of(Iterator[int])
    decoded = codec.load(json.loads(codec.dump(iter([1, 2]))))
    assert (next(decoded), list(decoded)) == (1, [2])


def test_an_unsupported_annotation_is_an_error() -> None:
    for hint in (complex, int | bytes, frozenset[int]):
        with pytest.raises(TypeError, match="not supported by the tracking store's protocol"):
            codec_of(hint)


@pytest.mark.parametrize(
    ("hint", "value", "message"),
    [
        (int, "5", "'5' is a str, expected an int"),
        (int, 1.0, "expected an int"),
        (float, "x", "expected a float"),
        (str, 5, "5 is a int, expected a str"),
        (bytes, "text", "expected bytes"),
        (datetime, "2026", "expected a datetime"),
        (MetricsReport, {"trial_id": 1}, "expected a MetricsReport"),
        (list[int], 5, "expected a list"),
    ],
)
def test_values_of_other_types_are_not_encoded(hint: Any, value: Any, message: str) -> None:
    with pytest.raises(CodecMismatch, match=message):
        codec_of(hint).dump(value)


def test_errors_of_arguments_name_the_method_and_the_argument(remote: TrackingStore) -> None:
    with pytest.raises(TypeError, match=r"trial\(\): missing a required argument: 'trial_id'"):
        remote.trial()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"logs\(\): after: 'x' is a str, expected an int"):
        remote.logs(1, after="x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (TypeError("a"), TypeError, "a"),
        (ValueError("a"), ValueError, "a"),
        (KeyError("a"), KeyError, "'a'"),
        (OverflowError("a"), OverflowError, "a"),
        (UnicodeError("a"), ValueError, "a"),
        (MetricsConflict("é \udcff"), MetricsConflict, "é \udcff"),
        (UnwritableText("a"), UnwritableText, "a"),
        (Unavailable("a"), StoreBusy, "a"),
        (errors.StorageError("a"), TrackingError, "StorageError: a"),
        (ZeroDivisionError("a"), TrackingError, "ZeroDivisionError: a"),
    ],
)
def test_errors_come_back_with_their_class_and_message(
    error: Exception, kind: type[Exception], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Exception) as raised:
        find_method("trial").load_answer(dump_error(error))
    assert (type(raised.value), str(raised.value)) == (kind, message)
    assert bool(caplog.records) is (kind is TrackingError)


BOMB = gzip.compress(b'{"trial_id":1,"x":"' + bytes(2_000_000))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"[]", "expected a JSON object"),
        (b"\xff", "can't decode byte"),
        (b"\x1f\x8b broken", "Error -3"),
        (gzip.compress(b'{"trial_id":1}')[:-9], "truncated"),
        (2 * gzip.compress(b'{"trial_id":1}'), "other data follow"),
        (BOMB, "more than 1 MiB"),
        (b" " * 1_100_000, "more than 1 MiB"),
        (b'{"trial_id":' + b"[" * 100_000, "more than 100 levels deep"),
        (b"[" * 101 + b"]" * 1_000_000, "more than 100 levels deep"),
        (b"[]" * 101 + b"]" * 1_000_000, "more closing than opening brackets"),
        (b'{"trial_id":"%b"}' % (b"\xed\xa0\x80" * 20_000), "more than 10000 halves of surrogate pairs"),
        (b"{}", "missing a required argument: 'trial_id'"),
        (b'{"trial_id":1,"self":2}', "there is no argument 'self'"),
        (b'{"trial_id":true}', "True is a bool, expected an int"),
        (b'{"trial_id":"1"}', "'1' is a str, expected an int"),
        (b'{"trial_id":' + b"9" * 5000 + b"}", "Exceeds the limit"),
    ],
)
def test_malformed_calls_are_refused(
    direct: TrackingStore, body: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_calls, "MAX_BODY_BYTES", 1 << 20)
    with pytest.raises(TrackingError, match=f"the call of trial is malformed: .*{message}.*Install the same release"):
        find_method("trial").load_answer(answer_call(direct, "trial", body))


@pytest.mark.parametrize(
    ("hint", "value", "message"),
    [
        (State, "SLEEPING", "'SLEEPING' is a str, expected State"),
        (bytes, "?", "expected base64"),
        (datetime, "noon", "expected a time in ISO 8601"),
        (set[str], [["a"]], "expected a str"),
        (tuple[int, Any], [1], "expected 2 items"),
        (Mapping[str, Any], [[[], 1]], "expected a dict or a list of pairs"),
        (Mapping[str, Any], [[2**64, 1]], "expected a dict or a list of pairs"),  # their hashes may be the same
        (Collection[int], [1, 2**64], "expected an int of at most 64 bits"),
        (Mapping[str, Any], 5, "expected a dict"),
        (dict[int, str], {"1": "a"}, "expected a list"),
        (Run, {"trial_id": 1}, "missing 2 required"),
        (Run, {"trial_id": 1, "admin": True}, "a Run has no field 'admin'"),
        (str | int, True, "expected str or int"),
    ],
)
def test_malformed_values_are_refused(hint: Any, value: Any, message: str) -> None:
    with pytest.raises(CodecMismatch, match=message):
        codec_of(hint).load(value)


@pytest.mark.parametrize("count", ["limit", "offset"])
def test_counts_of_rows_are_not_negative(direct: TrackingStore, count: str) -> None:
    with pytest.raises(TrackingError, match=f"malformed: {count} is -1; expected at least 0"):
        find_method("experiments").load_answer(answer_call(direct, "experiments", f'{{"{count}":-1}}'.encode()))


@pytest.mark.parametrize("name", ["close", "url", "__class__", "_database", "no", ""])
def test_only_methods_of_the_interface_can_be_called(direct: TrackingStore, name: str) -> None:
    with pytest.raises(TrackingError, match=f"the tracking store has no method '{name}'. Install the same release"):
        find_method("trial").load_answer(answer_call(direct, name, b"{}"))


@pytest.mark.parametrize("answer", [b"", b"{}", b'{"returned":5}', b'{"raised":5}', b'{"raised":["TypeError"]}'])
def test_malformed_answers_are_refused(answer: bytes) -> None:
    store = open_remote_store(lambda method, body: answer, url="")
    with pytest.raises(TrackingError, match="the answer of trial is malformed.*Install the same release"):
        store.trial(1)


def test_long_calls_and_answers_are_refused(
    remote: TrackingStore, direct: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = direct.create_experiment(config={}, model_definition=bytes(1 << 20))
    monkeypatch.setattr(_calls, "MAX_BODY_BYTES", 1 << 20)
    with pytest.raises(TrackingError, match="the call of create_experiment has more than 1 MiB"):
        remote.create_experiment(config={}, model_definition=bytes(1 << 20))
    with pytest.raises(TrackingError, match="the answer of model_definition has more than 1 MiB"):
        remote.model_definition(experiment.id)
    assert [found.id for found in direct.experiments()] == [experiment.id]


def test_a_call_is_long_because_of_code_only(remote: TrackingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_calls, "_MAX_WRITING_BYTES", 1 << 20)
    code = bytes(2 << 20)
    remote.create_experiment(config={}, model_definition=code)
    with pytest.raises(CallTooLarge, match="the call of create_experiment has more than 1 MiB without code"):
        remote.create_experiment(config={"name": "x" * (1 << 20)}, model_definition=code)


def test_an_endless_iterator_is_read_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_codecs, "MAX_BODY_BYTES", 1000)
    assert len(codec_of(Iterator[str]).dump(iter(lambda: "x" * 98, None))) == 1 + 11 * 101


def test_long_bodies_are_compressed() -> None:
    method = find_method("report_metrics")
    reports = [REPORT] * 1000
    body = method.dump_arguments([reports], {})
    assert len(body) < 20_000
    (decoded,) = method.load_arguments(body).values()
    assert repr(decoded) == repr(reports)


def test_a_failed_call_has_no_effect_on_later_ones(remote: TrackingStore) -> None:
    with pytest.raises(RecordNotFound, match="there is no trial 5 in sqlite"):
        remote.trial(5)
    assert remote.experiments() == []


@pytest.mark.integration
def test_other_threads_run_while_a_large_call_is_decoded() -> None:
    """A run could otherwise keep the whole server waiting for a second with each call."""
    body = ("{" + ",".join(f'"{number}":{number}.5' for number in range(250_000)) + "}").encode()
    ended, ticks = threading.Event(), 0

    def tick() -> None:
        nonlocal ticks
        while not ended.wait(0.001):
            ticks += 1

    expected, thread = json.loads(body), threading.Thread(target=tick)
    thread.start()
    try:
        found = load_values(body)
    finally:
        ended.set()
        thread.join()
    assert found == expected
    assert ticks > 20


@pytest.mark.integration
def test_code_is_encoded_and_decoded_in_pieces_between_which_other_threads_run(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def sized(function: Callable[..., bytes]) -> Callable[..., bytes]:
        def call(data: Any, **options: Any) -> bytes:
            sizes.append(len(data))
            return function(data, **options)

        return call

    for name in ("b64encode", "b64decode"):
        monkeypatch.setattr(base64, name, sized(getattr(base64, name)))
    create, read = find_method("create_experiment"), find_method("model_definition")
    for length in (0, 1, 5_000_000):
        code = bytes(number % 251 for number in range(length))
        assert create.load_arguments(create.dump_arguments((), {"config": {}, "model_definition": code})) == {
            "config": {},
            "model_definition": code,
        }
        assert read.load_answer(read.dump_result(code)) == code
    assert 10_000 < max(sizes) < 1 << 20


def test_a_call_cannot_consist_of_escapes() -> None:
    """Each of them takes time in which no other thread runs."""
    with pytest.raises(CallTooLarge, match="32 MiB of backslashes"):
        load_values(b'{"model_definition":"%b"}' % (b"\\\\" * (17 << 20)))


@pytest.mark.parametrize("size", [0, 1, 1000, 300_000])
def test_texts_and_brackets_are_told_apart_across_the_pieces_in_which_they_are_searched(size: int) -> None:
    text = '"' + "x" * size + '\\\\\\"[[[["'
    for levels in (100, 101):
        nested = f"{'[1],' * 60}{text},{'[' * (levels - 2)}{text}{']' * (levels - 2)}"
        body = f'{{"a":[{nested}]}}'
        if levels == 100:
            assert load_values(body.encode()) == json.loads(body)
        else:
            with pytest.raises(ValueError, match="more than 100 levels deep"):
                load_values(body.encode())


@pytest.mark.integration
def test_a_large_answer_takes_little_memory_while_it_is_encoded() -> None:
    method = find_method("metrics")
    reports = (replace(REPORT, metrics={"text": str(number % 10) * 10_000}) for number in range(3000))
    tracemalloc.start()
    try:
        answer = method.dump_result(reports)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20
    assert len(list(method.load_answer(answer))) == 3000
