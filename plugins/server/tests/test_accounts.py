"""Tests of users, sessions, tokens and roles."""

from __future__ import annotations

import io
import json
import re
import threading
from datetime import timedelta
from typing import Any

import pytest
from det_server import _access, _login_limits, _passwords
from det_server._access import AccountAccess, LocalAccess
from det_server._login_limits import LoginLimits
from det_server._passwords import NOBODY, hash_password, verify_password
from det_server._permissions import PERMITTED, SERVER_ONLY
from det_server._persons_store import AUDITED
from det_server._refusal import RefusedError
from det_server._signatures import Signer, load_signing_key

from det_core.cli import main
from det_core.errors import RecordNotFound
from det_core.interfaces.account_records import Role, TokenScope
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking.remote import READING_METHODS

from .serving import PASSWORD, ServedSite

METHODS = TrackingStore.__abstractmethods__ - {"close"}


# Passwords


def test_a_password_is_stored_as_an_argon2_hash_with_its_own_salt() -> None:
    first, second = hash_password(PASSWORD), hash_password(PASSWORD)
    assert first.startswith("$argon2id$") and first != second
    assert verify_password(first, PASSWORD)
    assert not verify_password(first, PASSWORD + "x")


def test_nobody_has_the_hash_of_unknown_users_which_costs_as_much() -> None:
    from argon2 import PasswordHasher

    assert not PasswordHasher().check_needs_rehash(NOBODY)
    assert len(NOBODY) == len(hash_password(PASSWORD))
    for password in ("", "\0" * 32, PASSWORD):
        assert not verify_password("", password)


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
        limits.count_attempt("Ann", "10.0.0.1")
    assert refused.value.status == 429
    limits.count_attempt("ann", "10.0.0.2")
    limits.count_attempt("bob", "10.0.0.1")
    time[0] = 15 * 60
    limits.count_attempt("ann", "10.0.0.1")


def test_an_address_cannot_try_many_users_and_many_addresses_cannot_try_one() -> None:
    limits = LoginLimits(lambda: 0.0)
    tries = [_refused(limits, f"user{number}", "2001:db8::1") for number in range(40)]
    assert tries.index(True) == 30
    assert _refused(limits, "another", "2001:db8::2"), "a client has a whole network of IPv6 addresses"
    assert not _refused(limits, "another", "2001:db8:0:1::2")
    tries = [_refused(limits, "ann", f"10.0.{number}.1") for number in range(100)]
    assert tries.index(True) == 60


def test_the_limits_remember_a_bounded_number() -> None:
    limits = LoginLimits(lambda: 0.0)
    for number in range(3 * _login_limits._REMEMBERED):
        _refused(limits, f"user{number}", "10.0.0.1")
    assert max(len(known) for known in limits._attempts.values()) == _login_limits._REMEMBERED
    assert _refused(limits, "one more", "10.0.0.1"), "the address is remembered although the names are not"


def _refused(limits: LoginLimits, user: str, address: str) -> bool:
    try:
        limits.count_attempt(user, address)
    except RefusedError:
        return True
    return False


def test_parallel_attempts_are_counted_before_they_are_checked(team: ServedSite) -> None:
    statuses: list[int] = []

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


def test_forwarded_addresses_are_not_believed(team: ServedSite) -> None:
    statuses = [
        team.client.with_headers(X_Forwarded_For=f"10.0.0.{number}")
        .call("/api/login", {"user": "ann", "password": "wrong password"})
        .status
        for number in range(7)
    ]
    assert statuses[-1] == 429
    assert {action.address for action in team.store.actions()} == {"127.0.0.1"}


# Sessions


def test_a_login_creates_a_new_session_whatever_cookie_the_browser_has(team: ServedSite) -> None:
    fixed = {"Cookie": f"{team.cookie_name}=chosen-by-an-attacker"}
    login = {"user": "ann", "password": PASSWORD}
    answer = team.client.post("/login", login, **fixed)
    assert answer.cookie and "chosen" not in answer.cookie
    assert team.client.get("/experiments", **fixed).status == 303
    first = team.client.with_headers(Cookie=answer.cookie)
    assert first.get("/experiments").status == 200
    again = first.post("/login", login)
    assert again.cookie and again.cookie != answer.cookie
    assert first.get("/experiments").status == 303, "the earlier session of this browser has ended"


def test_a_login_leads_to_the_page_that_was_asked_for(team: ServedSite) -> None:
    target = team.client.get("/experiments?name=a&page=2").headers["location"]
    assert target == "/login?next=/experiments%3Fname%3Da%26page%3D2"
    assert 'value="/experiments?name=a&amp;page=2"' in team.client.get(target).text
    fields = {"user": "ann", "password": PASSWORD, "next": "/experiments?name=a&page=2"}
    assert team.client.post("/login", fields).headers["location"] == "/experiments?name=a&page=2"
    assert team.client.post("/login", {**fields, "next": "//evil.example"}).headers["location"] == "/"


def test_a_login_by_a_form_of_another_site_is_refused(team: ServedSite) -> None:
    fields = {"user": "ann", "password": PASSWORD}
    assert team.client.post("/login", fields, Origin="https://evil.example").cookie is None


def test_a_logout_ends_the_session(team: ServedSite) -> None:
    ann = team.log_in("ann")
    other = team.log_in("ann")
    answer = ann.post("/logout")
    assert answer.status == 303 and "max-age=0" in answer.headers["set-cookie"].lower()
    assert ann.get("/experiments").status == 303
    assert other.get("/experiments").status == 200


def test_a_logout_of_a_program_ends_its_token(team: ServedSite) -> None:
    ann = team.program("ann")
    assert ann.get("/api/info").json["user"] == "ann"
    assert ann.call("/api/logout").status == 200
    assert ann.get("/api/info").status == 401


def test_a_program_logs_in_with_whatever_token_it_had_before(team: ServedSite, local: ServedSite) -> None:
    old = team.client.with_headers(Authorization="Bearer expired")
    answer = old.call("/api/login", {"user": "ann", "password": PASSWORD})
    assert answer.status == 200 and answer.json["expires"]
    assert isinstance(local.site.access, LocalAccess)
    answer = local.client.call("/api/login", {"link": local.site.access.link_token})
    assert answer.json == {"token": local.site.access.command_line_token, "expires": None}


@pytest.mark.parametrize("change", [{"password": ""}, {"active": False}], ids=str)
def test_a_new_password_and_a_deactivation_end_everything(team: ServedSite, change: dict[str, Any]) -> None:
    ann, program = team.log_in("ann"), team.program("ann")
    team.store.edit_user("ann", **change)
    assert ann.get("/experiments").status == 303
    assert program.get("/api/info").status == 401


def test_a_session_ends_after_twelve_hours_without_a_request_and_after_seven_days(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create_user("ann", role=Role.USER, password="")
    access = AccountAccess(store)
    token, begin = access.create_session("ann"), _access.now()
    (record,) = store.access_tokens("ann")
    assert record.expires and abs(record.expires - begin - timedelta(hours=12)) < timedelta(minutes=1)
    assert access.admit_bearer(token) is None
    monkeypatch.setattr(_access, "now", lambda: begin + timedelta(minutes=5))
    assert access.admit_cookie(token)
    assert store.access_tokens("ann")[0].expires == record.expires, "it is not renewed with every request"
    monkeypatch.setattr(_access, "now", lambda: begin + timedelta(hours=11))
    assert access.admit_cookie(token)
    renewed = store.access_tokens("ann")[0].expires
    assert renewed and abs(renewed - begin - timedelta(hours=23)) < timedelta(minutes=1)
    monkeypatch.setattr(_access, "now", lambda: begin + timedelta(days=6, hours=20))
    assert access.admit_cookie(token)
    assert store.access_tokens("ann")[0].expires == record.creation_time + timedelta(days=7)


def test_the_cookie_of_a_local_server_ends_and_survives_a_restart(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = load_signing_key()
    assert load_signing_key() == key
    before, after = LocalAccess(store, key), LocalAccess(store, key)
    cookie = before.admit_link(before.link_token)
    assert cookie and after.admit_cookie(cookie)
    assert after.admit_link(before.link_token) is None
    assert after.admit_bearer(before.command_line_token)
    begin = _access.now()
    start = int(begin.timestamp())
    monkeypatch.setattr(_access, "now", lambda: begin + timedelta(seconds=11 * 3600))
    renewed = after.admit_cookie(cookie)
    assert renewed and renewed.cookie
    monkeypatch.setattr(_access, "now", lambda: begin + timedelta(seconds=13 * 3600))
    assert after.admit_cookie(cookie) is None
    assert after.admit_cookie(renewed.cookie)
    monkeypatch.setattr(_access, "now", lambda: begin + timedelta(seconds=7 * 86400 + 5))
    assert after.admit_cookie(Signer(key).sign(f"session~{start}~{start + 7 * 86400}")) is None


def test_a_used_cookie_is_renewed(local: ServedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = local.owner
    assert owner.get("/experiments").cookie is None
    begin = _access.now()
    monkeypatch.setattr(_access, "now", lambda: begin + timedelta(seconds=3600))
    renewed = owner.get("/experiments").cookie
    assert renewed and renewed != owner.headers["Cookie"]
    assert owner.with_headers(Cookie=renewed).get("/experiments").cookie is None
    assert "max-age=0" in owner.post("/logout").headers["set-cookie"].lower(), "a logout is not undone by a renewal"


def test_other_signed_texts_are_no_cookies(store: TrackingStore) -> None:
    access = LocalAccess(store, b"k" * 32)
    cookie = access.admit_link(access.link_token)
    assert cookie
    assert access.admit_cookie(access.command_line_token) is None
    assert access.admit_bearer(cookie) is None
    for forged in (cookie[:-1], cookie + "x", Signer(b"x" * 32).sign("session~1~9999999999"), "", ".", "é"):
        assert access.admit_cookie(forged) is None


def test_the_key_is_private(det_home: Any) -> None:
    load_signing_key()
    assert (det_home / "server").stat().st_mode & 0o777 == 0o700
    assert (det_home / "server" / "key").stat().st_mode & 0o777 == 0o600


# Tokens


def test_an_api_token_has_a_scope_and_ends(team: ServedSite) -> None:
    ann = team.log_in("ann")
    for scope, role in (("read", "VIEWER"), ("write", "USER")):
        answer = ann.post("/account/tokens", {"label": "nightly", "scope": scope, "days": "3"})
        assert answer.status == 200 and answer.headers["cache-control"] == "no-store"
        record = team.store.access_tokens("ann")[-1]
        assert record.expires and timedelta(days=2) < record.expires - record.creation_time <= timedelta(days=3)
        (secret,) = re.findall(r"DET_TOKEN=([\w-]{43})<", answer.text)
        program = team.client.with_headers(Authorization=f"Bearer {secret}")
        assert program.get("/api/info").json["role"] == role
        assert team.client.get("/experiments", Cookie=f"{team.cookie_name}={secret}").status == 303, "it is no cookie"
    assert ann.post(f"/account/tokens/{record.id}/delete").status == 303
    assert program.get("/api/info").status == 401


@pytest.mark.parametrize(
    "fields",
    [{"scope": "admin"}, {"scope": "x"}, {"scope": "read", "days": "0"}, {"scope": "read", "days": "9999"}],
    ids=str,
)
def test_a_token_cannot_permit_more_than_its_user(team: ServedSite, fields: dict[str, str]) -> None:
    assert team.log_in("ann").post("/account/tokens", fields).status == 400
    assert [token.kind.value for token in team.store.access_tokens()] == ["SESSION"]


def test_a_token_loses_what_its_user_loses(team: ServedSite) -> None:
    token = AccountAccess(team.store).create_api_token("root", TokenScope.ADMIN, "", None)
    team.add_user("second", Role.ADMIN)
    program = team.client.with_headers(Authorization=f"Bearer {token}")
    assert program.get("/api/info").json["role"] == "ADMIN"
    team.store.edit_user("root", role=Role.VIEWER)
    assert program.get("/api/info").json["role"] == "VIEWER"


def test_accounts_cannot_be_changed_with_a_token(team: ServedSite) -> None:
    program = team.program("root")
    for path, fields in (
        ("/account/tokens", {"scope": "read"}),
        ("/account/password", {"old": PASSWORD, "password": PASSWORD + "x"}),
        ("/users", {"name": "eve", "role": "admin", "password": PASSWORD}),
    ):
        assert program.post(path, fields).status == 403, path


def test_nobody_deletes_tokens_of_others(team: ServedSite) -> None:
    team.log_in("root")
    (token,) = team.store.access_tokens("root")
    assert team.log_in("ann").post(f"/account/tokens/{token.id}/delete").status == 404
    assert team.store.access_tokens("root") == [token]


# Roles


def test_every_method_of_the_store_is_classified_once() -> None:
    viewer, user, admin = PERMITTED[Role.VIEWER], PERMITTED[Role.USER], PERMITTED[Role.ADMIN]
    assert viewer < user < admin
    assert admin | SERVER_ONLY == METHODS
    assert not admin & SERVER_ONLY
    assert viewer <= READING_METHODS, "a viewer may only read"
    assert not (user - viewer) & READING_METHODS
    assert set(AUDITED) <= METHODS - viewer


def test_no_method_that_handles_hashes_or_users_is_for_users() -> None:
    words = {"user", "users", "password", "token", "tokens", "action", "actions"}
    touched = {name for name in METHODS if words & set(name.split("_"))}
    assert touched >= {"password_hash", "create_user", "access_token", "record_action"}
    assert not touched & PERMITTED[Role.USER]


def test_only_admins_manage_users(team: ServedSite) -> None:
    new = {"name": "bob", "role": "viewer", "password": PASSWORD}
    for name in ("ann", "vic"):
        assert team.log_in(name).post("/users", new).status == 403
    root = team.log_in("root")
    assert root.post("/users", new).status == 303
    bob = team.store.user("bob")
    assert bob.role is Role.VIEWER
    assert root.post(f"/users/{bob.id}/role", {"role": "user"}).status == 303
    assert team.store.user("bob").role is Role.USER
    assert root.post(f"/users/{bob.id}/password", {"password": "another password"}).status == 303
    session = team.log_in("bob", "another password")
    assert root.post(f"/users/{bob.id}/deactivate").status == 303
    assert session.get("/experiments").status == 303
    assert root.post(f"/users/{bob.id}/activate").status == 303
    assert root.post("/users", new).status == 409
    assert root.post("/users", {**new, "name": "../x"}).status == 400
    assert root.post("/users", {**new, "name": "c", "password": "short"}).status == 400
    done = [(entry.user, entry.action, entry.target) for entry in team.store.actions() if entry.target == "user bob"]
    assert [action for _, action, _ in reversed(done)] == [
        "create as VIEWER",
        "set role USER",
        "set password",
        "deactivate",
        "activate",
    ]


def test_the_last_admin_stays(team: ServedSite) -> None:
    root = team.log_in("root")
    identity = team.store.user("root").id
    assert root.post(f"/users/{identity}/deactivate").status == 409
    assert root.post(f"/users/{identity}/role", {"role": "user"}).status == 409


def test_a_changed_password_begins_a_new_session_and_ends_the_others(team: ServedSite) -> None:
    ann, other = team.log_in("ann"), team.log_in("ann")
    assert ann.post("/account/password", {"old": "wrong password", "password": "a new password"}).status == 401
    answer = ann.post("/account/password", {"old": PASSWORD, "password": "a new password"})
    assert answer.status == 303 and answer.cookie
    assert other.get("/experiments").status == ann.get("/experiments").status == 303
    assert ann.with_headers(Cookie=answer.cookie).get("/experiments").status == 200
    assert team.log_in("ann", "a new password")


def test_a_local_server_has_no_accounts(local: ServedSite) -> None:
    assert local.commands.call("/api/login", {"user": "root", "password": PASSWORD}).status == 404
    assert local.owner.post("/users", {"name": "eve", "role": "admin", "password": PASSWORD}).status == 404
    assert local.store.users() == []


def test_logins_are_recorded_without_passwords(team: ServedSite) -> None:
    team.log_in("ann")
    team.client.call("/api/login", {"user": "ann", "password": "not my password"})
    team.client.call("/api/login", {"user": "\x1b[2J<b>", "password": "not my password"})
    entries = [(entry.user, entry.action, entry.address) for entry in team.store.actions()]
    assert entries == [
        ("?", "failed login", "127.0.0.1"),
        ("ann", "failed login", "127.0.0.1"),
        ("ann", "login", "127.0.0.1"),
    ]


# det user


def test_users_on_the_command_line(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PASSWORD}\n"))
    assert main(["user", "create", "ann", "--role", "admin", "--password-stdin"]) == 0
    assert verify_password(store.password_hash("ann"), PASSWORD)
    assert main(["user", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(user["name"], user["role"], user["active"]) for user in listed] == [("ann", "ADMIN", True)]
    assert "password" not in json.dumps(listed) and "argon2" not in json.dumps(listed)
    monkeypatch.setattr("sys.stdin", io.StringIO("another password\n"))
    assert main(["user", "edit", "ann", "--password-stdin"]) == 0
    assert verify_password(store.password_hash("ann"), "another password")
    capsys.readouterr()
    assert main(["user", "token", "ann", "--scope", "read", "--label", "nightly"]) == 0
    token = capsys.readouterr().out.strip()
    principal = AccountAccess(store).admit_bearer(token)
    assert principal and (principal.name, principal.role) == ("ann", Role.VIEWER)
    assert main(["user", "deactivate", "ann"]) == 1, "the last admin"
    assert "admin" in capsys.readouterr().err
    assert [entry.action for entry in store.actions()] == ["create token nightly", "set password", "create as ADMIN"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "ann", "--password-stdin"], "already"),
        (["create", "a b", "--password-stdin"], "a b"),
        (["create", "bob"], "--password-stdin"),
        (["edit", "ann"], "--role"),
        (["edit", "nobody", "--role", "user"], "nobody"),
        (["token", "nobody"], "nobody"),
        (["token", "ann", "--days", "0"], "--days 0"),
        (["list", "--store", "https://det.example"], "expected a database"),
    ],
    ids=str,
)
def test_errors_of_the_command_line(
    store: TrackingStore,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    store.create_user("ann", role=Role.ADMIN, password="")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PASSWORD}\n"))
    assert main(["user", *arguments]) == 1
    assert message in capsys.readouterr().err
    with pytest.raises(RecordNotFound):
        store.user("bob")
