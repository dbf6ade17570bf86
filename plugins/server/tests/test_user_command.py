"""Tests of ``det user``."""

from __future__ import annotations

import io
import json

import pytest
from det_server._access import AccountAccess
from det_server._passwords import verify_password

from det_core.cli import main
from det_core.errors import RecordNotFound
from det_core.interfaces.account_records import Role
from det_core.interfaces.tracking import TrackingStore

from .serving import PASSWORD


def test_users_on_the_command_line(
    store: TrackingStore,
    quick_passwords: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PASSWORD}\n"))
    assert main(["user", "create", "ann", "--role", "admin", "--password-stdin"]) == 0
    assert verify_password(store.password_hash("ann"), PASSWORD)
    assert main(["user", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(user["name"], user["role"], user["active"]) for user in listed] == [("ann", "ADMIN", True)]
    assert main(["user", "list"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:3] == ["ann", "admin", "yes"]
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
