"""The option ``--master``, and logins at servers."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from det_core.cli._program import parser_for
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store
from det_core.tracking.access_tokens import find_token, save_token

from ..answering_server import Behaviour, saved_servers, served
from .conftest import Det


@pytest.fixture(autouse=True)
def _own_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_MASTER", "")  # so that what a command sets is undone


@pytest.fixture
def there(tmp_path: Path) -> Iterator[TrackingStore]:
    """Return the store of the server, which has one experiment."""
    with open_store(f"sqlite:///{tmp_path}/there.db") as store:
        store.create_experiment(config={"name": "there"})
        yield store


@pytest.fixture
def behaviour(there: TrackingStore) -> Behaviour:
    def log_in(body: Mapping[str, Any]) -> Mapping[str, Any]:
        known = body in ({"user": "ada", "password": "lovelace"}, {"link": "printed"})
        return {"token": "issued" if known else "wrong"}

    return Behaviour(there, routes={"/api/login": log_in, "/api/logout": lambda _: {}})


@pytest.fixture
def address(behaviour: Behaviour) -> Iterator[str]:
    with served(behaviour) as url:
        yield url


@pytest.mark.parametrize("form", ["-m {}", "--master {}", "--master={}", "-m{}"])
def test_the_option_before_the_command_chooses_the_store(det: Det, address: str, form: str) -> None:
    words = form.format(address).split()
    assert [one["name"] for one in det(*words, "experiment", "list", "--json").json] == ["there"]


def test_the_option_accepts_databases(det: Det, there: TrackingStore) -> None:
    assert det("-m", there.url, "experiment", "describe", "1", "--json").json["name"] == "there"


def test_the_variable_chooses_the_store(det: Det, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_MASTER", address)
    assert det("experiment", "list", "--json").json[0]["name"] == "there"
    monkeypatch.setenv("DET_MASTER", "")
    assert det("experiment", "list", "--json").json == []


def test_only_the_named_command_is_imported(address: str) -> None:
    assert parser_for(["-m", address, "experiment", "list"]).parse_args(["-m", address, "experiment", "list"]).run


def test_a_missing_url_is_an_error(det: Det) -> None:
    assert "expected one argument" in det("-m").err


def test_editing_goes_to_the_server(det: Det, address: str, there: TrackingStore) -> None:
    det("-m", address, "experiment", "label", "add", "1", "good")
    assert there.experiment(1).labels == ["good"]


def test_a_login_saves_a_token_that_a_logout_deletes(
    det: Det, address: str, behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("lovelace\n"))
    result = det("login", address, "--user", "ada")
    assert f"Logged in at {address} as ada (admin)" in result.out
    assert "issued" not in result.out + result.err
    assert saved_servers() == [address]
    behaviour.token = "issued"
    assert det("-m", address, "experiment", "list", "--json").json[0]["name"] == "there"
    assert det("-m", address, "logout", "--json").json == {"url": address, "was_logged_in": True}
    assert behaviour.requests[-1][0] == "/api/logout"
    assert saved_servers() == []
    assert f"No token for {address} was saved" in det("logout", address).out


def test_the_printed_url_logs_in(det: Det, address: str, behaviour: Behaviour) -> None:
    assert "Logged in" in det("login", f"{address}/?token=printed").out
    assert find_token(address) == "issued"
    assert "printed" not in json.dumps([path for path, _ in behaviour.requests])


def test_a_refused_login_saves_nothing(
    det: Det, address: str, behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    behaviour.token = "issued"
    monkeypatch.setattr("sys.stdin", io.StringIO("wrong\n"))
    assert "the token is unknown" in det("login", address, "--user", "ada").err
    assert saved_servers() == []


def test_a_logout_works_without_the_server(det: Det) -> None:
    save_token("http://127.0.0.1:9", "old")
    assert "Logged out at http://127.0.0.1:9" in det("logout", "http://127.0.0.1:9").out


@pytest.mark.parametrize("command", ["login", "logout"])
def test_a_login_needs_a_server(det: Det, command: str) -> None:
    assert f"no URL is not that of a det server; give one: det {command} https://HOST:PORT" in det(command).err


def test_the_database_of_a_server_is_maintained_on_its_host(det: Det, address: str) -> None:
    assert "is a det server, and det store works on the database itself" in det("-m", address, "store", "check").err


@pytest.mark.integration
def test_a_test_of_one_batch_stays_here(det: Det, address: str, tmp_path: Path, there: TrackingStore) -> None:
    (tmp_path / "train.py").write_text("from det_core import core\nwith core.init() as context:\n    pass\n")
    (tmp_path / "const.yaml").write_text(
        "entrypoint: python3 train.py\nsearcher: {name: single, metric: loss, max_length: {batches: 1}}\n"
    )
    det("-m", address, "experiment", "create", str(tmp_path / "const.yaml"), str(tmp_path), "--test")
    assert len(there.experiments()) == 1
