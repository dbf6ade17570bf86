"""Odd requests to all routes, by callers with all kinds of credentials."""

from __future__ import annotations

import gzip
import inspect
import json
import logging
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote_from_bytes

import pytest
from det_server._runner_keeper import RunnerKeeper
from det_testing import campaign_seeds

from det_core.interfaces.tracking import TrackingStore
from det_core.text import to_json_compatible
from tests.nasty_values import NUMBERS, TEXTS

from .all_routes import all_routes
from .seeded_store import Seeded, seed_store
from .serving import Client, ServedSite

pytestmark = pytest.mark.integration

METHODS = sorted(
    {name for name in TrackingStore.__abstractmethods__ if callable(getattr(TrackingStore, name))} - {"close"}
)
MOST_BYTES = 1 << 20
"""Limit on an answer in bytes. The largest page of the seeded store has 200 KB."""
MOST_SECONDS = 2.0
"""Limit on the CPU seconds of a request."""
STATUSES = {200, 206, 303, 304, 400, 401, 403, 404, 405, 408, 409, 411, 413, 415, 416, 429, 431}
IDS = [
    "",
    "-1",
    "0",
    "1.0",
    "1e3",
    str(2**63 - 1),
    str(2**63),
    str(2**70),
    "9" * 4000,
    "x",
    "%00",
    "%ff",
    "%D9%A3",
    "1%2F2",
]
_FORM_TYPE = {"Content-Type": "application/x-www-form-urlencoded"}
_ENDLESS = ("/live", "/api/logout", "/logout")
"""Routes that never end their answer, or that end the credentials."""
QUERY = """
action after archived axis back before best columns differ experiments file group label level limit list log metric
metrics name names next order page points rank reverse search series state stdtype step tag trials until where
""".split()  # noqa: SIM905  (a list literal is three times as long)
FORM = """
checkpoint comment days description experiments label labels model name next notes old password project role scope user
workspace
""".split()  # noqa: SIM905
JSON = """
changes checkpoint code config external_id from_beginning link original_config password run_id trial_id user
""".split()  # noqa: SIM905
_PLAIN = [
    "1",
    "1,2,3",
    "-1",
    "search",
    "val_loss",
    "validation",
    "lr",
    "lr < 1",
    "epoch",
    "kill",
    "yes",
    "1," * 1000,
    "(" * 900,
]
_TEXTS = [text.encode(errors="surrogatepass") for text in (*TEXTS.values(), *_PLAIN)] + [b"\xff\xfe", b"z" * 100_000]
VALUES: list[Any] = [
    *(*TEXTS.values(), *NUMBERS.values(), *_PLAIN),
    *(None, True, 2**63, 2**70, [], {}, [1], [2**70], [None], [[1]], ["\ud800"], {"a": "\0"}, {"\ud800": 1}, {"": {}}),
    *(
        ["ACTIVE"],
        "ACTIVE",
        "2026-01-01T00:00:00",
        "0001-01-01T00:00:00+14:00",
        [{}],
        {"a": {"b": [1, {"c": "\ud800"}]}},
    ),
]
BODIES = [
    *(
        b"",
        b"[]",
        b"null",
        b'"x"',
        b"{",
        b"\xff\xfe",
        b"\0",
        b'{"a":1e999}',
        b'{"a":' + b"9" * 5000 + b"}",
        b"a=%00",
        b"a=%ff",
        b"a",
    ),
    *(b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000, b"&".join([b"a=1"] * 200)),
    *(gzip.compress(b" " * (40 << 20), 1), gzip.compress(b"{}"), gzip.compress(b"{}")[:-3]),
]
HEADERS: list[dict[str, str]] = [
    *({}, {}, {"Range": "bytes=0-0"}, {"Range": "bytes=9-1,-5,a-" + "1" * 5000}, {"Range": "bytes=" + "0-1," * 1000}),
    *({"If-None-Match": "*"}, {"If-None-Match": '"\xff"'}, {"If-Modified-Since": "never"}, {"If-Range": "x"}),
    *({"Accept-Encoding": "gzip;q=x"}, {"Content-Encoding": "gzip"}, {"Accept": "\xff"}, {"Content-Length": "1" * 30}),
    *(
        {"Content-Length": "-1"},
        {"Content-Length": str(2**40)},
        {"Transfer-Encoding": "chunked"},
        {"Det-Call-Id": "\xff"},
    ),
    *({"Content-Type": "text/plain; charset=x"}, {"Content-Type": "\xff"}, {"Authorization": "Bearer \xff"}),
    *({"Cookie": "det-8080=\xff; \xe9=\xe9;;=; det-8080"}, {"Origin": "\xff"}, {"Sec-Fetch-Site": "\xff"}),
    *({"X-Forwarded-For": "\xff, [::1"}, {"User-Agent": "det-core/\xff"}),
]
GOOD: Mapping[str, Any] = {
    **dict.fromkeys(
        ("trial_id", "experiment_id", "run_id", "version", "steps_completed", "step", "length", "number"), 1
    ),
    **{name: [1] for name in ("experiment_ids", "trial_ids")},
    **{name: {} for name in ("hparams", "config", "metrics", "storage", "resources", "metadata", "changes")},
    **{name: [] for name in ("events", "trials", "samples", "lines", "reports")},
    **{
        "state": "ACTIVE",
        "role": "USER",
        "progress": 0.5,
        "seconds": 1.0,
        "limit": 5,
        "points": 5,
        "smaller_is_better": True,
    },
}
"""Arguments of calls of the store."""


class Sweep:
    """Sender of one odd request to each route.

    Args:
        seed: seed of what is odd.
        seeded: ids of records that exist.
        caplog: log of the server.

    Attributes:
        failures: what went wrong.
    """

    def __init__(self, seed: int, seeded: Seeded, caplog: pytest.LogCaptureFixture) -> None:
        self._random = random.Random(seed)
        self._seeded = seeded
        self._caplog = caplog
        self.failures: list[str] = []

    def send_all(self, browser: Client, program: Client, share: float = 1.0) -> None:
        """Send a request to each route, and one with each method of the store.

        Args:
            browser: client of pages.
            program: client of the API.
            share: share of the routes and methods.
        """
        for method, path in (*all_routes(self._parameter), *(("POST", f"/api/store/{name}") for name in METHODS)):
            if path in _ENDLESS or self._random.random() > share:
                continue
            client, body = (program if path.startswith(("/api/", "/metrics")) else browser), None
            if method not in ("GET", "HEAD"):
                body = self._body(path)
            query = f"?{self._fields(QUERY)}" if self._random.random() < 0.8 else ""
            self._check(
                client,
                method,
                path + query,
                body,
                {"Origin": browser.headers["Origin"], **_FORM_TYPE, **self._pick(HEADERS)},
            )

    def _check(self, client: Client, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> None:
        what = f"{method} {path[:300]} {headers} {body and body[:300]!r}"
        self._caplog.clear()
        begin = time.process_time()
        try:
            answer = client.request(method, path, body, headers)
        except Exception as error:  # noqa: BLE001  (whatever no handler of the application has caught)
            self.failures.append(f"{error!r:.300}: {what}")
            return
        seconds = time.process_time() - begin
        logged = [one.getMessage() for one in self._caplog.records if one.levelno >= logging.ERROR]
        if answer.status not in STATUSES or len(answer.body) > MOST_BYTES or seconds > MOST_SECONDS or logged:
            self.failures.append(f"{answer.status}, {len(answer.body)} bytes, {seconds} s, {logged}: {what}")

    def _pick(self, values: Sequence[Any]) -> Any:
        return self._random.choice(values)

    def _parameter(self, kind: str) -> str:
        if self._random.random() < 0.5:
            return str(self._pick(IDS))
        return str(self._random.randint(1, 8)) if kind == "int" else self._seeded.checkpoint

    def _fields(self, names: Sequence[str]) -> str:
        chosen = self._random.choices(names, k=self._pick([1, 1, 2, 5, 40]))
        return "&".join(f"{name}={quote_from_bytes(self._pick(_TEXTS))}" for name in chosen)

    def _body(self, path: str) -> bytes:
        if self._random.random() < 0.2:
            return bytes(self._pick(BODIES))
        if path.startswith("/api/store/"):
            return self._arguments(path.removeprefix("/api/store/"))
        if path.startswith("/api/"):
            values = {name: self._pick(VALUES) for name in self._random.sample(JSON, k=3)}
            return json.dumps({"trial_id": 1, "run_id": 1, "code": "", "config": {}, **values}).encode()
        return self._fields(FORM).encode()

    def _arguments(self, name: str) -> bytes:
        if name not in METHODS:
            return b"{}"
        _, *parameters = inspect.signature(getattr(TrackingStore, name)).parameters.values()
        needed = {one.name for one in parameters if one.default is inspect.Parameter.empty}
        odd = {one.name: self._pick(VALUES) for one in parameters if self._random.random() < 1.5 / len(parameters)}
        return json.dumps({**{one: GOOD.get(one, "digits") for one in needed}, **odd}).encode()


def read_records(store: TrackingStore, but: Sequence[int] = ()) -> Any:
    """Return the records that callers without rights may not change, except those of some experiments."""
    experiments = [one.id for one in store.experiments() if one.id not in but]
    return to_json_compatible(
        [
            *(store.experiments_by_id(experiments), store.models(), store.users(), store.model_versions("digits")),
            *((store.trials(one), store.checkpoints(experiment_id=one)) for one in experiments),
        ]
    )


@pytest.fixture
def seeded(team: ServedSite, monkeypatch: pytest.MonkeyPatch) -> Seeded:
    monkeypatch.setattr(RunnerKeeper, "start_runner", lambda *args, **options: None)
    return seed_store(team.store, trials=4, batches=640)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", campaign_seeds(few=1, many=100))
def test_odd_requests_fail_in_no_way_and_gain_no_rights(
    team: ServedSite, seeded: Seeded, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    sweep, store = Sweep(seed, seeded, caplog), team.store
    stranger = team.client.with_headers(Origin=f"http://127.0.0.1:{team.client.address[1]}")
    root = team.program("root")
    trial = store.trial(seeded.running_trial)
    token = root.call("/api/run_tokens", {"trial_id": trial.id, "run_id": trial.run_id}).json["token"]
    worker = team.client.with_headers(Origin=stranger.headers["Origin"], Authorization=f"Bearer {token}")
    people = {
        name: (team.log_in(name).with_headers(Origin=stranger.headers["Origin"]), team.program(name))
        for name in ("vic", "ann", "root")
    }
    before = read_records(store, but=[trial.experiment_id])
    sweep.send_all(stranger, stranger, share=0.2)
    sweep.send_all(worker, worker, share=0.5)
    sweep.send_all(*people["vic"])
    assert read_records(store, but=[trial.experiment_id]) == before
    users = to_json_compatible(store.users())
    sweep.send_all(*people["ann"], share=0.5)
    assert to_json_compatible(store.users()) == users
    sweep.send_all(*people["root"])
    assert not sweep.failures, "\n".join(sweep.failures)
