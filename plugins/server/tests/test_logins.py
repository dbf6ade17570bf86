"""Tests of passwords and of the limits on logins."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import re
import threading
from pathlib import Path

import det_server
import pytest
from det_server import _login_limits, _passwords
from det_server._login_limits import LoginLimits
from det_server._passwords import NOBODY, hash_password, verify_password
from det_server._refusal import RefusedError
from det_server._threads import THREADS, Work

from det_core.errors import StoreBusy

from .serving import LIMIT, PASSWORD, ServedSite, wait_for


def test_a_password_is_stored_as_an_argon2_hash_with_its_own_salt(quick_passwords: None) -> None:
    first, second = hash_password(PASSWORD), hash_password(PASSWORD)
    assert first.startswith("$argon2id$") and first != second
    assert verify_password(first, PASSWORD)
    assert not verify_password(first, PASSWORD + "x")


@pytest.mark.integration
def test_nobody_has_the_hash_of_unknown_users_which_costs_as_much() -> None:
    from argon2 import PasswordHasher

    hashed = hash_password(PASSWORD)
    assert not PasswordHasher().check_needs_rehash(NOBODY)
    assert (len(NOBODY), NOBODY.split("$")[:4]) == (len(hashed), hashed.split("$")[:4])
    assert not verify_password("", PASSWORD)


@pytest.mark.parametrize("password", ["", "short", "x" * 9, "x" * 1001])
def test_passwords_have_a_length(password: str) -> None:
    with pytest.raises(_passwords.PasswordError, match="10 to 1000"):
        hash_password(password)


def test_unknown_users_inactive_users_and_wrong_passwords_are_verified_alike(
    team: ServedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    team.add_user("gone")
    team.store.edit_user("gone", active=False)
    verified: list[str] = []
    verify = verify_password

    def count(hashed: str, password: str) -> bool:
        verified.append(hashed)
        return verify(hashed, password)

    monkeypatch.setattr(_passwords, "verify_password", count)
    answers = []
    for name in ("ann", "nobody", "gone", "bad name\0", ""):
        before = len(verified)
        answer = team.client.call("/api/login", {"user": name, "password": "wrong password"})
        assert len(verified) == before + 1, name
        answers.append((answer.status, answer.body))
    assert set(answers) == {(401, answers[0][1])}
    assert team.client.call("/api/login", {"user": "gone", "password": PASSWORD}).status == 401


# Limits on logins


def test_failures_of_one_user_at_one_address_are_limited_and_a_success_forgets_them() -> None:
    time = [0.0]
    limits = LoginLimits(lambda: time[0])
    for _ in range(4):
        limits.count_attempt("ann", "10.0.0.1")
    limits.forgive("ann", "10.0.0.1")
    for _ in range(5):
        limits.count_attempt("ann", "10.0.0.1")
    with pytest.raises(RefusedError, match="too many") as refused:
        limits.count_attempt("ann", "10.0.0.1")
    assert refused.value.status == 429
    limits.count_attempt("ann", "10.0.0.2")
    limits.count_attempt("bob", "10.0.0.1")
    time[0] = 15 * 60
    limits.count_attempt("ann", "10.0.0.1")


def test_a_success_forgets_no_failures_of_a_user_whose_name_differs_in_case() -> None:
    limits = LoginLimits(lambda: 0.0)
    for _ in range(5):
        limits.count_attempt("ann", "10.0.0.1")
    limits.count_attempt("ANN", "10.0.0.1")
    limits.forgive("ANN", "10.0.0.1")
    assert _refused(limits, "ann", "10.0.0.1")


def test_a_refusal_says_when_to_try_again() -> None:
    now = [0.0]
    limits = LoginLimits(lambda: now[0])
    for now[0] in (0.0, 1.0, 2.0, 3.0, 4.0):
        limits.count_attempt("ann", "10.0.0.1")
    for now[0], seconds, minutes in ((60.0, "840", 14), (61.0, "839", 14), (899.0, "1", 1)):
        with pytest.raises(RefusedError, match=f"try again in {minutes} min, ") as refused:
            limits.count_attempt("ann", "10.0.0.1")
        assert refused.value.headers == {"retry-after": seconds}


def test_entries_that_a_person_adds_to_the_audit_log_are_limited(
    team: ServedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a viewer could fill the disk. Strangers exhaust no limit of a person, because they have no password."""
    monkeypatch.setitem(_login_limits._CHANGES, "changes", (3, 900.0))
    vic, login = team.log_in("vic"), {"user": "vic", "password": PASSWORD}
    for _ in range(4):
        assert team.client.call("/api/login", {**login, "password": "wrong"}).status == 401
    made = [vic.post("/account/tokens", {"label": "x", "scope": "read"}) for _ in range(3)]
    assert [answer.status for answer in made] == [200, 200, 429]
    assert "too many logins and changes of vic; try again in 15 min" in made[-1].text
    assert team.client.call("/api/login", login).status == 429
    assert team.client.call("/api/login", {**login, "user": "ann"}).status == 200
    entries = [one.action for one in team.store.actions() if one.user == "vic"]
    assert sorted(entries) == ["create token"] * 2 + ["failed login"] * 4 + ["login"]


def test_entries_of_a_day_are_limited() -> None:
    now = [0.0]
    limits, permitted = LoginLimits(lambda: now[0]), 0
    for now[0] in (*range(0, 86_400, 900), 86_399.0, 86_400.0):
        for _ in range(20):
            with contextlib.suppress(RefusedError):
                limits.count_change("vic")
                permitted += 1
    assert permitted == 1000 + 20


def test_failures_beyond_a_number_are_counted(team: ServedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each network has attempts of its own, and there are any number of networks."""
    monkeypatch.setattr(_login_limits, "MAX_RECORDED_FAILURES", 1)
    for _ in range(4):
        assert team.client.call("/api/login", {"user": "vic", "password": "wrong"}).status == 401
    entries = [(one.user, one.action, one.target) for one in team.store.actions()]
    numbers = [("?", "failed login", f"more than {number} in 15 min") for number in (2, 1)]
    assert entries == [*numbers, ("vic", "failed login", "")]


def test_the_audit_log_has_the_number_of_failures_each_time_it_doubles() -> None:
    now = [0.0]
    limits = LoginLimits(lambda: now[0])
    recorded = [limits.count_failure() for _ in range(5000)]
    assert recorded[:1000] == [""] * 1000
    later = {number: one for number, one in enumerate(recorded) if one is not None and number >= 1000}
    assert later == {number: f"more than {number} in 15 min" for number in (1000, 2000, 4000)}
    now[0] = 900.0
    assert limits.count_failure() == ""


def test_logins_that_succeed_never_exhaust_a_limit() -> None:
    limits = LoginLimits(lambda: 0.0)
    for _ in range(29):
        _refused(limits, "bob", "10.0.0.1")
    for _ in range(100):
        assert not _refused(limits, "ann", "10.0.0.1")
        limits.forgive("ann", "10.0.0.1")
    assert not _refused(limits, "eve", "10.0.0.1")
    assert _refused(limits, "eve", "10.0.0.1"), "failures of others at this address still count"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("a" * 101, "10.0.0.1"), ("a" * 102, "10.0.0.1"), True),
        (("a" * 99, "10.0.0.1"), ("a" * 100, "10.0.0.1"), False),
        (("ann", "p" * 64), ("ann", "p" * 65), True),
        (("ann", "not an address"), ("ann", "no address"), False),
        (("ann", "2001:db8::1"), ("ann", "2001:db8::ffff"), True),
        (("ann", "::ffff:10.0.0.1"), ("ann", "::ffff:10.0.0.2"), False),
        (("ann", "::ffff:10.0.0.1"), ("ann", "10.0.0.1"), True),
        (("ann", "10.0.0.1"), ("ann", "10.0.0.2"), False),
        (("ann", "10.0.0.1:5000"), ("ann", "10.0.0.1:5001"), True),
        (("ann", "[2001:db8::1]:5000"), ("ann", "2001:db8::2"), True),
    ],
)
def test_attempts_are_counted_by_user_and_network(one: tuple[str, str], other: tuple[str, str], same: bool) -> None:
    limits = LoginLimits(lambda: 0.0)
    for _ in range(5):
        limits.count_attempt(*one)
    assert _refused(limits, *other) is same


def test_an_address_cannot_try_many_users() -> None:
    limits = LoginLimits(lambda: 0.0)
    tries = [_refused(limits, f"user{number}", "2001:db8::1") for number in range(40)]
    assert tries.index(True) == 30
    assert _refused(limits, "another", "2001:db8::2"), "a client has a whole network of IPv6 addresses"
    assert not _refused(limits, "another", "2001:db8:0:1::2")


def test_strangers_lock_nobody_out() -> None:
    limits = LoginLimits(lambda: 0.0)
    for number in range(100):
        for _ in range(60):
            _refused(limits, "ann", f"10.0.{number}.1")
    assert not _refused(limits, "ann", "10.1.0.1"), "another address"
    assert _refused(limits, "ann", "10.0.0.1")
    for _ in range(5):
        limits.count_attempt("ann", "10.0.0.1", "a known device")
    with pytest.raises(RefusedError, match="too many"):
        limits.count_attempt("ann", "10.0.0.1", "a known device")
    limits.count_attempt("ann", "10.0.0.1", "another device")


@pytest.mark.parametrize("kind", ["browser", "program"])
def test_a_device_with_a_login_is_not_locked_out_by_others_at_its_address(team: ServedSite, kind: str) -> None:
    login = {"user": "ann", "password": PASSWORD}
    first = team.client.post("/login", login)
    (device,) = (value.partition(";")[0] for value in first.headers.get_all("set-cookie", []) if "-device=" in value)
    token = team.client.call("/api/login", login).json["token"]
    while team.client.call("/api/login", {"user": "ann", "password": "wrong password"}).status != 429:
        pass
    assert team.client.post("/login", login).status == 429
    if kind == "browser":
        known = team.client.with_headers(Cookie=device)
        assert known.post("/login", login).status == 303
        assert team.client.with_headers(Cookie=device.replace(".", ".0")).post("/login", login).status == 429
        assert known.post("/login", {"user": "root", "password": "wrong password"}).status == 401, "of its user only"
    else:
        known = team.client.with_headers(Authorization=f"Bearer {token}")
        assert known.call("/api/login", login).status == 200
    team.store.edit_user("ann", password=hash_password(PASSWORD))
    assert team.client.with_headers(Cookie=device).post("/login", login).status == 429, "until the password changes"


def test_people_with_a_known_device_do_not_wait_for_strangers(
    served_team: ServedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    team, login, ended = served_team, {"user": "ann", "password": PASSWORD}, threading.Event()
    cookies = team.client.post("/login", login).headers.get_all("set-cookie", [])
    device = next(cookie.partition(";")[0] for cookie in cookies if "-device=" in cookie)
    token = team.client.call("/api/login", login).json["token"]
    checked, verify = list[str](), verify_password

    def check(hashed: str, password: str) -> bool:
        checked.append(password)
        return verify(hashed, password) if password == PASSWORD else not ended.wait(LIMIT)

    def guess(number: int) -> None:
        host, port = team.client.address
        one = http.client.HTTPConnection(host, port, timeout=LIMIT, source_address=(f"127.0.0.{number}", 0))
        one.request("POST", "/api/login", '{"user": "ann", "password": "wrong password"}')
        one.getresponse().read()
        one.close()

    monkeypatch.setattr(_passwords, "verify_password", check)
    strangers = [threading.Thread(target=guess, args=[number]) for number in range(2, 10)]
    for stranger in strangers:
        stranger.start()
    assert wait_for(lambda: len(checked) == THREADS[Work.LOGINS])
    assert team.client.with_headers(Cookie=device).post("/login", login).status == 303
    assert team.client.with_headers(Authorization=f"Bearer {token}").call("/api/login", login).status == 200
    ended.set()
    for stranger in strangers:
        stranger.join(LIMIT)


def test_attempts_beyond_the_limit_take_no_work(team: ServedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise strangers could send any number of them, which keep others waiting."""
    login = {"user": "ann", "password": "wrong password"}
    assert [team.client.post("/login", login).status for _ in range(6)] == [401] * 5 + [429]
    monkeypatch.setattr(team.store, "password_hash", None)
    monkeypatch.setattr(team.store, "access_token", None)
    assert team.client.post("/login", login).status == 429
    assert team.client.call("/api/login", login).status == 429


def test_cookies_are_read_in_linear_time() -> None:
    """The parser of Python takes time that is quadratic in their length (CVE-2024-7592)."""
    quadratic = re.compile(r"\.cookies\b|cookie_parser|SimpleCookie")
    sources = Path(det_server.__file__).parent.rglob("*.py")
    assert [path.name for path in sources if quadratic.search(path.read_text())] == []


def test_the_limits_remember_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_login_limits, "_REMEMBERED", 100)
    limits = LoginLimits(lambda: 0.0)
    for number in range(300):
        limits.count_attempt(f"user{number}", str(ipaddress.ip_address(number)))
    assert max(len(known) for known in limits._attempts.values()) == 100


def _refused(limits: LoginLimits, user: str, address: str) -> bool:
    try:
        limits.count_attempt(user, address)
    except RefusedError:
        return True
    return False


def test_parallel_attempts_are_counted_before_they_are_checked(served_team: ServedSite) -> None:
    team, statuses = served_team, list[int]()

    def attempt() -> None:
        statuses.append(team.client.call("/api/login", {"user": "ann", "password": "wrong password"}).status)

    threads = [threading.Thread(target=attempt) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(statuses) == [401] * 5 + [429] * 7
    answer = team.client.post("/login", {"user": "ann", "password": PASSWORD})
    assert answer.status == 429 and int(answer.headers["retry-after"]) > 0
    assert "too many attempts" in answer.text


@pytest.mark.parametrize("busy", ["hashing", "the store before", "the store afterwards"])
def test_an_attempt_that_a_busy_server_could_not_finish_does_not_count(
    team: ServedSite, monkeypatch: pytest.MonkeyPatch, busy: str
) -> None:
    """Programs repeat it at once, and strangers can keep the server busy."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise StoreBusy("busy")

    login = {"user": "ann", "password": PASSWORD}
    with monkeypatch.context() as patch:
        if busy == "hashing":
            patch.setattr(_passwords, "_WAITING", threading.BoundedSemaphore(1))
            _passwords._WAITING.acquire()
        else:
            method = {"the store before": "password_hash", "the store afterwards": "record_action"}[busy]
            patch.setattr(team.store, method, refuse)
        assert [team.client.call("/api/login", login).status for _ in range(6)] == [503] * 6
    assert team.client.call("/api/login", login).status == 200


def test_forwarded_addresses_are_not_believed(team: ServedSite) -> None:
    statuses = [
        team.client.with_headers(X_Forwarded_For=f"10.0.0.{number}")
        .call("/api/login", {"user": "ann", "password": "wrong password"})
        .status
        for number in range(7)
    ]
    assert statuses[-1] == 429
    assert {action.address for action in team.store.actions()} == {"127.0.0.1"}


def test_one_address_makes_the_limits_forget_nobody() -> None:
    limits = LoginLimits()
    for _ in range(6):
        with contextlib.suppress(RefusedError):
            limits.count_attempt("ann", "192.0.2.1")
    for number in range(_login_limits._REMEMBERED + 1):
        with contextlib.suppress(RefusedError):
            limits.count_attempt(f"user {number}", "198.51.100.1")
    with pytest.raises(RefusedError, match="too many attempts"):
        limits.count_attempt("ann", "192.0.2.1")
