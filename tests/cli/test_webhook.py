"""The command ``det webhook``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..webhook_receiver import receiving, sign
from .conftest import Det


def test_a_webhook_is_added_listed_tested_and_removed(det: Det) -> None:
    assert det("webhook", "list").out == "No webhooks yet. To add one: det webhook add NAME URL\n"
    with receiving() as receiver:
        added = det("webhook", "add", "pager", f"{receiver.url}/T0KEN", "--private", "--json").json
        assert (added["name"], added["states"], added["format"]) == ("pager", ["COMPLETED", "ERROR"], "DEFAULT")
        assert det("webhook", "test", "pager").out == "Webhook pager has received a test event\n"
        ((headers, body),) = receiver.requests
        assert body["event_type"] == "TEST"
        assert headers["webhook-signature"] == sign(added["key"], headers, json.dumps(body).encode())
        receiver.answers = [500]
        failed = det("webhook", "test", "pager")
        assert (failed.code, "127.0.0.1 answered 500" in failed.err) == (1, True)
    header, row = det("webhook", "list").out.splitlines()
    assert header.split() == ["NAME", "URL", "FORMAT", "ON", "WAITING", "LAST", "ERROR"]
    assert row.split()[:4] == [
        "pager",
        f"http://127.0.0.1:{receiver.server_port}/********",
        "default",
        "completed,error",
    ]
    (listed,) = det("webhook", "list", "--json").json
    assert "key" not in listed
    assert "T0KEN" not in json.dumps(listed)
    assert det("webhook", "rm", "pager").out == "Removed webhook pager\n"
    gone = det("webhook", "rm", "pager")
    assert (gone.code, "det webhook list" in gone.err) == (1, True)


def test_messages_for_slack_can_be_tested(det: Det) -> None:
    with receiving() as receiver:
        shown = det(
            "webhook", "add", "team", receiver.url, "--private", "--format", "slack", "--on", "error,active"
        ).out
        assert "To try it: det webhook test team" in shown
        assert det("webhook", "test", "team").code == 0
        assert receiver.requests[0][1] == {"text": "A test of det's webhook"}
    assert det("webhook", "list", "--json").json[0]["states"] == ["ERROR", "ACTIVE"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "x", "example.org"], "expected one such as https://example.org/hook"),
        (["add", "x", "https://a:b@example.org/"], "cannot contain a user or a password"),
        (["add", "x", "https://example.org/", "--on", "done"], "'done' is not one of active,paused,completed"),
        (["add", "x", "https://example.org/", "--format", "teams"], "choose from default, slack"),
        (["add", "a\nb", "https://example.org/"], "expected 1 to 64 letters"),
        (["test", "x"], "there is no webhook 'x'; to see all: det webhook list"),
    ],
)
def test_wrong_arguments_are_explained(det: Det, det_home: Path, arguments: list[str], message: str) -> None:
    result = det("webhook", *arguments)
    assert result.code != 0
    assert message in result.err
    assert det("webhook", "list", "--json").json == []
    assert not [*(det_home / "secrets").glob("*")]


def test_a_removed_webhook_leaves_no_secrets(det: Det, det_home: Path) -> None:
    det("webhook", "add", "pager", "https://example.org/T0KEN")
    det("webhook", "add", "other", "https://example.org/T0KEN")
    assert det("webhook", "add", "other", "https://example.org/T0KEN").code == 1
    assert len([*(det_home / "secrets").iterdir()]) == 4
    det("webhook", "rm", "pager")
    assert sorted(path.read_text()[:5] for path in (det_home / "secrets").iterdir()) == ["T0KEN", "whsec"]
    assert det("webhook", "list").out.count("other") == 1


def test_a_url_without_a_path_is_called_as_it_is(det: Det) -> None:
    with receiving() as receiver:
        det("webhook", "add", "pager", f"{receiver.url.removesuffix('/hook')}?token=T0KEN", "--private")
        receiver.answers = [404]
        refused = det("webhook", "test", "pager")
        assert receiver.targets == ["/?token=T0KEN"]
        assert "T0KEN" not in refused.err


def test_a_server_is_refused_without_a_call(det: Det, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_MASTER", "http://127.0.0.1:1")
    refused = det("webhook", "list")
    assert (refused.code, "det webhook works on the database itself" in refused.err) == (1, True)
    assert "retry" not in refused.err


def test_private_receivers_need_the_option(det: Det) -> None:
    with receiving() as receiver:
        det("webhook", "add", "pager", receiver.url)
        refused = det("webhook", "test", "pager")
        assert (refused.code, "has the private address 127.0.0.1" in refused.err) == (1, True)
        assert receiver.requests == []
