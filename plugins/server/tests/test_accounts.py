"""Tests of users, sessions, tokens and roles."""

from __future__ import annotations

import re
import secrets
import threading
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from det_server import _access, _accounts, _passwords
from det_server._access import AccountAccess, LocalAccess, role_of_scope
from det_server._passwords import hash_password
from det_server._principal import Principal
from det_server._request_bodies import BodyReader
from det_server._signatures import Signer, load_signing_key
from det_server._threads import Threads, Work

from det_core.errors import RecordNotFound, StoreBusy, TrackingError
from det_core.home import user_name
from det_core.interfaces.account_records import Role, TokenKind, TokenScope
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store
from det_core.tracking.remote import RunAccess

from .serving import PASSWORD, ServedSite, account_access, site_without_server, wait_for

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
    assert [one.action for one in team.store.actions()] == ["logout", "login", "login"]
    program = team.program("root")
    program.post("/login", login)
    assert program.get("/api/info").status == 200, "a token is not that of a browser"


@pytest.mark.parametrize("kind", ["cookie", "token", "login"])
def test_strangers_do_not_learn_why_the_store_cannot_be_used(
    team: ServedSite, monkeypatch: pytest.MonkeyPatch, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise TrackingError("the database /home/ann/det.db cannot be opened")

    headers = {"cookie": {"Cookie": f"{team.cookie_name}=x"}, "token": {"Authorization": "Bearer x"}, "login": {}}[kind]
    monkeypatch.setattr(team.store, "password_hash" if kind == "login" else "access_token", fail)
    ask = team.client.with_headers(**headers)
    answer = ask.post("/login", {"user": "ann", "password": "x"}) if kind == "login" else ask.get("/experiments")
    assert answer.status in (409, 503) and "the log of the server says why" in answer.text
    assert "det.db" not in answer.text and "det.db" in caplog.text


def test_a_login_leads_to_the_page_that_was_asked_for(team: ServedSite) -> None:
    target = team.client.get("/experiments?name=a&page=2").headers["location"]
    assert target == "/login?next=/experiments%3Fname%3Da%26page%3D2"
    assert 'value="/experiments?name=a&amp;page=2"' in team.client.get(target).text
    fields = {"user": "ann", "password": PASSWORD, "next": "/experiments?name=a&page=2"}
    assert team.client.post("/login", fields).headers["location"] == "/experiments?name=a&page=2"
    assert team.client.post("/login", {**fields, "next": "//evil.example"}).headers["location"] == "/"


@pytest.mark.parametrize(("mode", "status"), [("navigate", 303), ("cors", 401), ("same-origin", 401)])
def test_only_navigations_lead_to_the_login(team: ServedSite, mode: str, status: int) -> None:
    """A script of a page would take the login's page for its data."""
    answer = team.client.get("/experiments", Sec_Fetch_Mode=mode, Sec_Fetch_Site="same-origin")
    assert answer.status == status


def test_a_login_by_a_form_of_another_site_is_refused(team: ServedSite) -> None:
    fields = {"user": "ann", "password": PASSWORD}
    assert team.client.post("/login", fields, Origin="https://evil.example").cookie is None


def test_a_logout_ends_the_session(team: ServedSite) -> None:
    ann = team.log_in("ann")
    other = team.log_in("ann")
    answer = ann.post("/logout")
    cookie = answer.headers["set-cookie"].lower()
    assert answer.status == 303 and "max-age=0" in cookie and "httponly" in cookie and "samesite=strict" in cookie
    assert answer.headers["clear-site-data"] == '"cache", "storage"'
    assert ann.get("/experiments").status == 303
    assert other.get("/experiments").status == 200
    assert ann.post("/logout").status == 401
    assert [one.action for one in team.store.actions()] == ["logout", "login", "login"], "a session ends once"


def test_a_logout_of_a_program_ends_its_token(team: ServedSite) -> None:
    ann = team.program("ann")
    assert ann.get("/api/info").json["user"] == "ann"
    assert ann.call("/api/logout").status == 200
    assert ann.get("/api/info").status == 401
    assert (team.store.actions()[0].user, team.store.actions()[0].action) == ("ann", "logout")


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


@pytest.mark.parametrize("waits_for", ["body", "thread"])
@pytest.mark.parametrize("kind", ["browser", "program"])
@pytest.mark.parametrize("change", [{"password": ""}, {"active": False}, {"role": Role.USER}], ids=str)
def test_a_request_that_was_begun_before_its_sender_lost_rights_changes_nothing(
    team: ServedSite, monkeypatch: pytest.MonkeyPatch, kind: str, change: dict[str, Any], waits_for: str
) -> None:
    """Its body takes hours if the sender likes, and hundreds of other requests of the sender may be before it."""
    team.add_user("boss", Role.ADMIN)
    root = team.log_in("root") if kind == "browser" else team.program("root")
    read, run = BodyReader.read, Threads.run

    async def read_slowly(self: BodyReader, *called: Any) -> bytes:
        team.store.edit_user("root", **change)
        return await read(self, *called)

    async def run_late(self: Threads, work: Work, *called: Any, **options: Any) -> Any:
        if work is not Work.CREDENTIALS:
            team.store.edit_user("root", **change)
        return await run(self, work, *called, **options)

    monkeypatch.setattr(_accounts, "ADMISSION_SECONDS", 0)
    if waits_for == "body":
        monkeypatch.setattr(BodyReader, "read", read_slowly)
    else:
        monkeypatch.setattr(Threads, "run", run_late)
    send, path = (root.post, "/models") if kind == "browser" else (root.call, "/api/store/create_model")
    assert send(path, {"name": "m"}).status == 401
    assert team.store.models() == []


def test_a_token_whose_creation_waited_for_a_new_password_does_not_exist(
    team: ServedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, change = team.log_in("ann"), team.site.store.execute

    def wait(*args: Any) -> Any:
        team.store.edit_user("ann", password="")
        return change(*args)

    monkeypatch.setattr(team.store, "execute", wait)
    assert ann.post("/account/tokens", {"label": "kept", "scope": "write"}).status == 401
    assert team.store.access_tokens() == []
    assert "create token" not in [action.action for action in team.store.actions()]


@pytest.mark.parametrize("path", ["/login", "/api/login"])
def test_a_login_with_a_password_that_changes_while_it_is_checked_gives_no_token(
    team: ServedSite, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    verify = _passwords.verify_password

    def change_meanwhile(hashed: str, password: str) -> bool:
        team.store.edit_user("ann", password=hash_password(PASSWORD))
        return verify(hashed, password)

    monkeypatch.setattr(_passwords, "verify_password", change_meanwhile)
    send = team.client.post if path == "/login" else team.client.call
    assert send(path, {"user": "ann", "password": PASSWORD}).status == 401
    assert team.store.access_tokens() == []


def test_a_session_ends_after_twelve_hours_without_a_request_and_after_seven_days(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create_user("ann", role=Role.USER, password="")
    access = AccountAccess(store)
    token, begin = access.create_session("ann", ""), _access.now()
    (record,) = store.access_tokens("ann")
    assert record.expires and abs(record.expires - begin - timedelta(hours=12)) < timedelta(minutes=1)
    assert access.admit_bearer(token) is None
    monkeypatch.setattr(_access, "now", lambda: begin + timedelta(minutes=5))
    assert access.admit_cookie(token)
    assert store.access_tokens("ann")[0].expires == record.expires, "it is not renewed with every request"
    monkeypatch.setattr(_access, "now", lambda: begin + timedelta(hours=11))
    assert access.admit_cookie(token)
    renewed = wait_for(lambda: {store.access_tokens("ann")[0].expires} - {record.expires}).pop()
    assert renewed and abs(renewed - begin - timedelta(hours=23)) < timedelta(minutes=1)
    monkeypatch.setattr(_access, "now", lambda: begin + timedelta(days=6, hours=20))
    assert access.admit_cookie(token)
    wait_for(lambda: store.access_tokens("ann")[0].expires == record.creation_time + timedelta(days=7))


def test_requests_do_not_wait_for_the_renewal_of_their_session(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A write waits for those of others, and the threads that check credentials serve everybody."""
    store.create_user("ann", role=Role.USER, password="")
    access, free, written = AccountAccess(store), threading.Event(), list[bool]()
    token, begin = access.create_session("ann", ""), _access.now()

    def extend(token_id: int, *, expires: datetime) -> None:
        written.append(free.wait(1))
        raise StoreBusy("the database is locked")

    monkeypatch.setattr(_access, "now", lambda: begin + timedelta(minutes=11))
    monkeypatch.setattr(store, "extend_access_token", extend)
    assert all(access.admit_cookie(token) for _ in range(16))
    free.set()
    wait_for(lambda: "a session was not renewed: the database is locked" in caplog.text)
    assert written[0] and len(written) <= 2
    monkeypatch.undo()
    monkeypatch.setattr(_access, "now", lambda: begin + timedelta(minutes=11))
    assert access.admit_cookie(token)
    wait_for(lambda: (expires := store.access_tokens("ann")[0].expires) and expires > begin + timedelta(hours=12.1))


def test_the_cookie_of_a_local_server_survives_a_restart(store: TrackingStore) -> None:
    key = load_signing_key()
    assert load_signing_key() == key
    before, after = LocalAccess(store, key), LocalAccess(store, key)
    cookie = before.admit_link(before.link_token)
    assert cookie and after.admit_cookie(cookie)
    assert after.admit_link(before.link_token) is None
    assert after.admit_bearer(before.command_line_token)


@pytest.mark.parametrize(
    ("begun", "renewed", "admitted", "due"),
    [
        (0, 0, True, False),
        (600, 600, True, False),
        (601, 601, True, True),
        (12 * 3600, 12 * 3600, True, True),
        (12 * 3600 + 1, 12 * 3600 + 1, False, False),
        (7 * 86400, 0, True, False),
        (7 * 86400 + 1, 0, False, False),
    ],
)
def test_a_cookie_of_a_local_server_is_admitted_by_its_age(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch, begun: int, renewed: int, admitted: bool, due: bool
) -> None:
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    monkeypatch.setattr(_access, "now", lambda: now)
    seconds = int(now.timestamp())
    cookie = Signer(b"k" * 32).sign(f"session~{seconds - begun}~{seconds - renewed}")
    admission = LocalAccess(store, b"k" * 32).admit_cookie(cookie)
    assert (admission is not None) is admitted
    if admission:
        assert (admission.cookie is not None) is due
        assert admission.principal.role is Role.ADMIN
    if due and admission:
        assert admission.cookie == Signer(b"k" * 32).sign(f"session~{seconds - begun}~{seconds}")


def test_tokens_of_runs_last_longer_than_runs(store: TrackingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = _access.now()
    monkeypatch.setattr(_access, "now", lambda: begin)
    trial = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=1)
    store.start_run(trial.id, allocation_id="a")
    access = LocalAccess(store, b"k" * 32)
    admin = Principal("ann", Role.ADMIN)
    token = access.create_run_token(admin, trial.id, 1)
    (record,) = store.access_tokens()
    assert record.expires and abs(record.expires - begin - timedelta(days=90)) < timedelta(seconds=1)
    assert (record.user, record.trial_id, record.run_id) == ("", trial.id, 1)
    store.create_user("ann", role=Role.ADMIN, password="")
    named = AccountAccess(store).create_run_token(admin, trial.id, 1)
    assert store.access_tokens()[-1].user == "ann"
    for each, secret in ((access, token), (AccountAccess(store), named)):
        principal = each.admit_bearer(secret)
        assert principal and principal.run == RunAccess(trial.experiment_id, trial.id, 1)
        assert principal.role is Role.USER
        assert principal.name == (user_name() if each is access else "ann")
    with pytest.raises(RecordNotFound):
        access.create_run_token(admin, trial.id, 2)


@pytest.mark.parametrize(
    ("scope", "role", "permitted"),
    [
        (TokenScope.READ, Role.VIEWER, Role.VIEWER),
        (TokenScope.READ, Role.ADMIN, Role.VIEWER),
        (TokenScope.WRITE, Role.VIEWER, None),
        (TokenScope.WRITE, Role.USER, Role.USER),
        (TokenScope.ADMIN, Role.USER, None),
        (TokenScope.ADMIN, Role.ADMIN, Role.ADMIN),
    ],
)
def test_a_scope_permits_a_role_that_its_user_has(scope: TokenScope, role: Role, permitted: Role | None) -> None:
    assert role_of_scope(scope, role) is permitted


def test_a_used_cookie_is_renewed(local: ServedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = local.owner
    assert owner.get("/experiments").cookie is None
    begin = _access.now()
    monkeypatch.setattr(_access, "now", lambda: begin + timedelta(seconds=3600))
    renewed = owner.get("/experiments").cookie
    assert renewed and renewed != owner.headers["Cookie"]
    assert owner.with_headers(Cookie=renewed).get("/experiments").cookie is None
    assert "max-age=0" in owner.post("/logout").headers["set-cookie"].lower(), "a logout is not undone by a renewal"
    assert owner.get("/experiments").status == 200, "as the guide says, a logout without users ends no session"


def test_other_signed_texts_are_no_cookies(store: TrackingStore) -> None:
    access = LocalAccess(store, b"k" * 32)
    cookie = access.admit_link(access.link_token)
    assert cookie
    assert access.admit_cookie(access.command_line_token) is None
    assert access.admit_bearer(cookie) is None
    assert access.admit_bearer("\udcff") is None, "text that no header can have"
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


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"label": "x" * 100}, 200),
        ({"label": "x" * 101}, 400),
        ({"days": "1"}, 200),
        ({"days": "366"}, 200),
        ({"days": "367"}, 400),
        ({"days": "1.5"}, 400),
        ({}, 200),
    ],
    ids=str,
)
def test_labels_and_lives_of_tokens_are_limited(team: ServedSite, fields: dict[str, str], status: int) -> None:
    assert team.log_in("ann").post("/account/tokens", {"scope": "read", **fields}).status == status
    assert [token.label for token in team.store.access_tokens() if token.label] == (
        [fields["label"]] if status == 200 and "label" in fields else []
    )


def test_a_token_loses_what_its_user_loses(team: ServedSite) -> None:
    token = AccountAccess(team.store).create_api_token("root", TokenScope.ADMIN, "", None)
    team.add_user("second", Role.ADMIN)
    program = team.client.with_headers(Authorization=f"Bearer {token}")
    assert program.get("/api/info").json["role"] == "ADMIN"
    team.store.edit_user("root", role=Role.VIEWER)
    assert program.get("/api/info").json["role"] == "VIEWER"


@pytest.mark.integration
def test_the_page_of_an_account_shows_some_tokens_at_a_time(team: ServedSite) -> None:
    """The tokens of runs are as many as the runs of a person."""
    names = [secrets.token_hex(32) for _ in range(250)]
    for name in names:
        team.store.add_access_token(name, user="ann", kind=TokenKind.API, scope=TokenScope.READ, label=f"<{name}")
    ann, shown, path = team.log_in("ann"), list[str](), "/account"
    while path:
        page = ann.get(path).text
        shown += re.findall("&lt;([0-9a-f]{64})", page)
        (path,) = re.findall('rel="next" href="([^"]+)"', page) or [""]
        assert len(page) < 100_000
    assert shown == names[::-1]
    oldest = team.store.access_tokens("ann", limit=251)[0]
    assert ann.post(f"/account/tokens/{oldest.id}/delete").status == 303
    assert len(team.store.access_tokens("ann")) == len(names)


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


@pytest.mark.parametrize("page", ["/users", "/audit"])
def test_only_admins_see_users_and_actions(team: ServedSite, page: str) -> None:
    assert team.log_in("root").get(page).status == 200
    for name in ("ann", "vic"):
        answer = team.log_in(name).get(page)
        assert answer.status == 403 and "root" not in answer.text


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


def test_two_servers_share_the_accounts_of_a_store(team: ServedSite) -> None:
    with open_store() as store:
        other = site_without_server(store, account_access)
        program = team.program("ann")
        assert replace(program, app=other.client.app).get("/api/info").json["user"] == "ann"
        session = team.log_in("ann")
        assert replace(session, app=other.client.app).post("/logout").status == 303
        assert session.get("/experiments").status == 303
        replace(program, app=other.client.app).call("/api/logout")
        assert program.get("/api/info").status == 401


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
