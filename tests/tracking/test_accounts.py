"""Users, access tokens and the audit log of the tracking store."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from typing import Any

import pytest

from det_core.errors import RecordExists, RecordInUse, RecordNotFound
from det_core.interfaces.account_records import AccessTokenRecord, Role, TokenKind, TokenScope
from det_core.interfaces.server_store import Action, ServerStore
from det_core.tracking import _accounts

HOUR = timedelta(hours=1)


def digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def add_token(store: ServerStore, secret: str, user: str = "ada", **values: Any) -> AccessTokenRecord:
    values = {"kind": TokenKind.API, "scope": TokenScope.WRITE, **values}
    return store.add_access_token(digest(secret), user=user, **values)


@pytest.fixture(autouse=True)
def _ada(store: ServerStore) -> None:
    store.create_user("ada", role=Role.ADMIN, password="hash of ada")


def test_users_are_created_listed_and_edited(store: ServerStore) -> None:
    made = store.create_user("Bob.B-2_x@here", role=Role.VIEWER, password="")
    assert (made.name, made.role, made.active) == ("Bob.B-2_x@here", Role.VIEWER, True)
    assert store.user(made.name) == made
    assert [user.name for user in store.users()] == [made.name, "ada"]
    assert [store.password_hash(name) for name in ("ada", made.name)] == ["hash of ada", ""]
    edited = store.edit_user(made.name, role=Role.USER, password="new")
    assert edited == replace(made, role=Role.USER) == store.user(made.name)
    assert store.password_hash(made.name) == "new"
    assert store.edit_user(made.name, active=False) == replace(edited, active=False)
    assert store.edit_user(made.name) == replace(edited, active=False)
    assert "hash" not in repr(store.users())


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "a\n", "<b>", "a" * 65, "a\0", "'"])
def test_names_with_other_characters_are_rejected(store: ServerStore, name: str) -> None:
    with pytest.raises(ValueError, match="expected 1 to 64 letters"):
        store.create_user(name, role=Role.USER, password="")
    assert len(store.users()) == 1


def test_unknown_and_existing_names_are_rejected(store: ServerStore) -> None:
    with pytest.raises(RecordExists, match="there is a user 'ada' already"):
        store.create_user("ada", role=Role.VIEWER, password="")
    assert store.user("ada").role is Role.ADMIN
    for call in (store.user, store.password_hash, store.edit_user, store.access_tokens):
        with pytest.raises(RecordNotFound, match="there is no user 'eve'"):
            call("eve")
    with pytest.raises(RecordNotFound, match="there is no active user 'eve'"):
        add_token(store, "s", user="eve")


@pytest.mark.parametrize("change", [{"role": Role.USER}, {"active": False}])
def test_an_active_admin_is_left(store: ServerStore, change: dict[str, Any]) -> None:
    add_token(store, "s")
    store.create_user("bob", role=Role.ADMIN, password="")
    store.edit_user("bob", active=False)
    with pytest.raises(RecordInUse, match="'ada' is the last active admin"):
        store.edit_user("ada", **change)
    assert store.user("ada").role is Role.ADMIN
    assert store.access_token(digest("s")).user == "ada"  # nothing was changed
    store.edit_user("bob", active=True)
    store.edit_user("ada", **change)
    with pytest.raises(RecordInUse, match="'bob' is the last active admin"):
        store.edit_user("bob", **change)


def test_two_admins_cannot_demote_each_other_at_the_same_time(store: ServerStore) -> None:
    store.create_user("bob", role=Role.ADMIN, password="")
    for _ in range(5):
        refused: list[str] = []
        start = threading.Barrier(2)

        def demote(name: str, start: threading.Barrier = start, refused: list[str] = refused) -> None:
            start.wait(60)
            try:
                store.edit_user(name, role=Role.USER)
            except RecordInUse:
                refused.append(name)

        threads = [threading.Thread(target=demote, args=(name,)) for name in ("ada", "bob")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(refused) == 1
        assert store.user(refused[0]).role is Role.ADMIN
        for name in ("ada", "bob"):
            store.edit_user(name, role=Role.ADMIN)


def test_tokens_are_found_by_their_digest(store: ServerStore) -> None:
    expires = datetime.now(timezone.utc) + HOUR
    session = add_token(store, "one", kind=TokenKind.SESSION, scope=TokenScope.ADMIN, expires=expires)
    assert (session.user, session.role, session.kind, session.scope) == (
        "ada",
        Role.ADMIN,
        TokenKind.SESSION,
        TokenScope.ADMIN,
    )
    assert (session.expires, session.trial_id, session.label) == (expires, None, "")
    of_run = add_token(store, "two", kind=TokenKind.RUN, trial_id=7, run_id=2, label="é")
    assert (of_run.trial_id, of_run.run_id, of_run.expires, of_run.label) == (7, 2, None, "é")
    assert store.access_token(digest("one")) == session
    assert store.access_token(digest("two")) == of_run
    assert store.access_tokens() == store.access_tokens("ada") == [session, of_run]
    assert store.access_tokens("ada", limit=1) == store.access_tokens(before=of_run.id + 1, limit=1) == [of_run]
    assert store.access_tokens(before=of_run.id) == [session]
    assert digest("one") not in repr(store.access_tokens())
    store.delete_access_token(session.id)
    store.delete_access_token(session.id)  # as a second logout
    with pytest.raises(RecordNotFound, match="the access token is unknown or has expired"):
        store.access_token(digest("one"))
    assert store.access_tokens() == [of_run]
    assert add_token(store, "three").id > of_run.id


def test_a_run_needs_no_user(store: ServerStore) -> None:
    token = add_token(store, "s", user="", kind=TokenKind.RUN, trial_id=1, run_id=1)
    assert (token.user, token.role) == ("", Role.USER)
    assert store.access_token(digest("s")) == token
    assert store.access_tokens("ada") == []


def test_expired_tokens_are_invalid_and_deleted_later(store: ServerStore) -> None:
    now = datetime.now(timezone.utc)
    add_token(store, "old", expires=now - timedelta(seconds=1))
    add_token(store, "new", expires=now + HOUR)
    with pytest.raises(RecordNotFound, match="has expired"):
        store.access_token(digest("old"))
    assert [token.user for token in store.access_tokens()] == ["ada"]
    with pytest.raises(RecordExists, match="an access token with this digest"):
        add_token(store, "new")
    add_token(store, "old")  # its row was deleted
    assert store.access_token(digest("old")).expires is None


@pytest.mark.parametrize("end", ["deletion", "expiry"])
def test_a_token_ends_with_its_parent(store: ServerStore, end: str) -> None:
    parent, other = add_token(store, "parent"), add_token(store, "other")
    children = [
        add_token(store, f"of {one.id}", kind=TokenKind.RUN, trial_id=1, run_id=1, parent_id=one.id)
        for one in (parent, other)
    ]
    assert store.access_token(digest(f"of {parent.id}")) == children[0]
    if end == "deletion":
        store.delete_access_token(parent.id)
    else:
        store.extend_access_token(parent.id, expires=datetime.now(timezone.utc) - HOUR)
    with pytest.raises(RecordNotFound, match="the access token is unknown"):
        store.access_token(digest(f"of {parent.id}"))
    assert store.access_tokens() == [other, children[1]]


def test_tokens_can_be_extended_until_they_expire(store: ServerStore) -> None:
    now = datetime.now(timezone.utc)
    session = add_token(store, "s", kind=TokenKind.SESSION, expires=now + HOUR)
    store.extend_access_token(session.id, expires=now + 2 * HOUR)
    assert store.access_token(digest("s")) == replace(session, expires=now + 2 * HOUR)
    store.extend_access_token(session.id, expires=now - HOUR)
    for token_id in (session.id, session.id + 1):
        store.extend_access_token(token_id, expires=now + HOUR)
    with pytest.raises(RecordNotFound, match="has expired"):
        store.access_token(digest("s"))


@pytest.mark.parametrize("change", [{"password": "new"}, {"active": False}])
def test_a_new_password_and_a_deactivation_end_all_sessions(store: ServerStore, change: dict[str, Any]) -> None:
    store.create_user("bob", role=Role.USER, password="")
    add_token(store, "bob's", user="bob")
    add_token(store, "ada's")
    store.edit_user("bob", role=Role.VIEWER)
    assert store.access_token(digest("bob's")).role is Role.VIEWER  # the present role
    store.edit_user("bob", **change)
    with pytest.raises(RecordNotFound, match="the access token is unknown"):
        store.access_token(digest("bob's"))
    store.edit_user("bob", active=True)
    assert store.access_tokens("bob") == []
    assert store.access_token(digest("ada's")).user == "ada"


@pytest.mark.parametrize("kind", [TokenKind.API, TokenKind.SESSION])
def test_a_user_has_a_limited_number_of_tokens(
    store: ServerStore, monkeypatch: pytest.MonkeyPatch, kind: TokenKind
) -> None:
    """Those of runs, which a search may have by the thousand, do not count. Neither do expired ones."""
    monkeypatch.setattr(_accounts, "MAX_TOKENS", 2)
    store.create_user("bob", role=Role.USER, password="")
    for number in range(3):
        add_token(store, f"run {number}", kind=TokenKind.RUN, trial_id=1, run_id=number)
    add_token(store, "expired", kind=kind, expires=datetime.now(timezone.utc) - HOUR)
    first, _ = (add_token(store, name, kind=kind) for name in ("first", "second"))
    with pytest.raises(RecordInUse, match="'ada' has 2 (access tokens|sessions); expected at most 2"):
        add_token(store, "third", kind=kind)
    add_token(store, "bob's", user="bob", kind=kind)
    store.delete_access_token(first.id)
    add_token(store, "third", kind=kind)


def test_inactive_users_get_no_tokens(store: ServerStore) -> None:
    store.create_user("bob", role=Role.USER, password="")
    store.edit_user("bob", active=False)
    with pytest.raises(RecordNotFound, match="there is no active user 'bob'"):
        add_token(store, "s", user="bob")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"kind": TokenKind.RUN}, "the kind RUN needs trial_id and run_id"),
        ({"kind": TokenKind.RUN, "trial_id": 1}, "the kind RUN needs trial_id and run_id"),
        ({"trial_id": 1, "run_id": 1}, "the kind API has no trial_id and run_id"),
        ({"user": ""}, "the kind API needs a user"),
        ({"user": "", "kind": TokenKind.SESSION}, "the kind SESSION needs a user"),
    ],
)
def test_tokens_have_what_their_kind_needs(store: ServerStore, values: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        add_token(store, "s", **values)


@pytest.mark.parametrize("text", ["", "secret", "A" * 64, "a" * 63])
def test_a_secret_in_place_of_its_digest_is_rejected_and_not_shown(store: ServerStore, text: str) -> None:
    with pytest.raises(ValueError, match="64 hexadecimal digits") as raised:
        store.add_access_token(text, user="ada", kind=TokenKind.API, scope=TokenScope.READ)
    assert not text or text not in str(raised.value)


def test_actions_are_returned_newest_first_and_in_pages(store: ServerStore) -> None:
    for number in range(5):
        store.record_action(Action("ada", "pause", f"experiment {number}", "127.0.0.1"))
    store.record_action(Action("nobody\0", "login"))
    newest, *others = store.actions()
    assert (newest.user, newest.action, newest.target, newest.address) == ("nobody\ufffd", "login", "", "")
    assert [action.target for action in others] == [f"experiment {number}" for number in (4, 3, 2, 1, 0)]
    assert others[0].time <= newest.time
    assert store.actions(before=others[0].id, limit=2) == others[1:3]
