"""Requests that the client sends, and the errors that it makes of answers."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from det_mlflow._client import MLflowClient, MLflowError, RecordMissing, RequestRefused, ServerUnreachableError
from det_mlflow._config import MLflowConfig

SECRET = "hunter2"


class Answers:
    """Server that gives one answer to every request, and keeps the requests."""

    def __init__(self) -> None:
        self.address = ""
        self.status, self.body, self.headers = 200, b"{}", dict[str, str]()
        self.requests: list[tuple[str, str, Mapping[str, str], bytes]] = []


@pytest.fixture
def answers() -> Iterator[Answers]:
    given = Answers()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            given.requests.append((self.command, self.path, dict(self.headers), body))
            self.send_response(given.status)
            for name, value in {**given.headers, "Content-Length": str(len(given.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(given.body)

        do_GET = do_POST = do_PUT = handle_any

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        given.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield given
        server.shutdown()
        thread.join(30)


def make_client(answers: Answers, **options: Any) -> MLflowClient:
    return MLflowClient(MLflowConfig(tracking_uri=answers.address, **options))


def basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("options", "environment", "header"),
    [
        ({}, {}, None),
        ({"token": "a"}, {}, "Bearer a"),
        ({"username": "me", "password": "ä"}, {}, basic("me", "ä")),
        ({}, {"TOKEN": "b"}, "Bearer b"),
        ({}, {"USERNAME": "you", "PASSWORD": "c", "TOKEN": "b"}, basic("you", "c")),
        ({"token": "a"}, {"USERNAME": "you", "PASSWORD": "c"}, "Bearer a"),
        ({"username": "me"}, {"USERNAME": "you", "PASSWORD": "c"}, basic("me", "c")),
    ],
)
def test_credentials_are_those_of_the_config_or_of_the_environment(
    answers: Answers,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    environment: dict[str, str],
    header: str | None,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", value)
    make_client(answers, **options).get("runs/get", run_id="a b")
    (request,) = answers.requests
    assert request[1] == "/api/2.0/mlflow/runs/get?run_id=a+b"
    assert request[2].get("Authorization") == header


def test_a_file_is_uploaded_as_it_is(answers: Answers, tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.write_bytes(bytes(range(256)) * 1000)
    make_client(answers).upload("0/run/ä b", file)
    ((method, path, headers, body),) = answers.requests
    assert (method, path) == ("PUT", "/api/2.0/mlflow-artifacts/artifacts/0/run/%C3%A4%20b")
    assert (headers["Content-Length"], body) == ("256000", file.read_bytes())


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (401, b"You are not authenticated.", MLflowError, "refuses access .401: You are not.*MLFLOW_TRACKING_TOKEN"),
        (403, b'{"error_code": "PERMISSION_DENIED", "message": "no"}', MLflowError, "refuses access .403: no"),
        (404, b"<html>Not Found</html>", MLflowError, "does not answer as MLflow does.*tracking_uri"),
        (200, b"<html>Welcome</html>", MLflowError, "does not answer as MLflow does"),
        (404, b'{"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no run"}', RecordMissing, "no run"),
        (400, b'{"error_code": "INVALID_PARAMETER_VALUE", "message": "a name"}', RequestRefused, "a name"),
        (413, b"<html>Too Large</html>", RequestRefused, "Too Large"),
        (429, b"slow down", MLflowError, "status 429: slow down"),
        (502, b"", MLflowError, "status 502: no text"),
    ],
)
def test_errors_say_what_to_do(answers: Answers, status: int, body: bytes, kind: type[MLflowError], said: str) -> None:
    answers.status, answers.body = status, body
    with pytest.raises(MLflowError, match=said) as caught:
        make_client(answers, token=SECRET).post("runs/create", {"run_name": "a"})
    assert type(caught.value) is kind
    assert SECRET not in str(caught.value)


def test_redirects_are_not_followed(answers: Answers) -> None:
    answers.status, answers.headers = 302, {"Location": "https://login.example.com/start?state=abc"}
    with pytest.raises(MLflowError, match="redirects to https://login.example.com/start; set") as caught:
        make_client(answers, token=SECRET).post("runs/create", {})
    assert len(answers.requests) == 1
    assert "abc" not in str(caught.value)


def test_a_silent_server_costs_the_time_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = MLflowClient(MLflowConfig(tracking_uri=f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.1))
        with pytest.raises(ServerUnreachableError, match="cannot reach MLflow at .*timed out.*tracking_uri"):
            client.post("runs/create", {})


def test_texts_that_are_not_unicode_are_sent(answers: Answers) -> None:
    make_client(answers).post("runs/log-batch", {"tags": [{"key": "a", "value": "\udc80ä"}]})
    assert json.loads(answers.requests[0][3])["tags"][0]["value"] == "?ä"


def test_tls_settings_are_those_of_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_SERVER_CERT_PATH", str(tmp_path / "missing.pem"))
    with pytest.raises(MLflowError, match="MLFLOW_TRACKING_SERVER_CERT_PATH.*missing.pem"):
        MLflowClient(MLflowConfig(tracking_uri="https://127.0.0.1:1"))
