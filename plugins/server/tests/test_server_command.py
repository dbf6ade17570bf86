"""Tests of ``det server``: what it refuses to expose, how it starts, and what it costs."""

from __future__ import annotations

import contextlib
import logging
import re
import select
import socket
import ssl
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from det_server._browser import open_browser
from det_server._log_lines import LineFilter
from det_server._passwords import hash_password
from det_server._server_process import ServerOptions, check_exposure

from det_core.cli import main
from det_core.interfaces.account_records import Role
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking.access_tokens import find_token

from .serving import (
    LIMIT,
    PASSWORD,
    ServerProcess,
    account_access,
    local_access,
    running_server,
    served,
    site_without_server,
    wait_for,
    write_certificate,
)

CERTIFICATE = ("--tls-cert", "cert.pem", "--tls-key", "key.pem")


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """Return a certificate for ``det.test`` and loopback addresses, with its key."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    write_certificate(cert, key, days=2)
    return cert, key


def _options(*arguments: str) -> ServerOptions:
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    return ServerOptions(
        store=None,
        host=given.get("host", "127.0.0.1"),
        port=0,
        users="users" in given,
        checkpoint_storage=None,
        tls_cert=Path("c") if "tls" in given else None,
        tls_key=Path("k") if "tls" in given else None,
        proxy_hosts=[given["proxy"]] if "proxy" in given else [],
        browser=False,
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", "", "2130706433"])
def test_no_other_address_is_served_without_users_and_tls(host: str) -> None:
    with pytest.raises(Exception, match=r"add --users, .*det user create NAME --role admin"):
        check_exposure(_options("host", host))
    with pytest.raises(Exception, match=r"add --users"):
        check_exposure(_options("host", host, "tls", ""))
    with pytest.raises(Exception, match=r"add --tls-cert CERT.pem --tls-key KEY.pem, or --proxy-host NAME"):
        check_exposure(_options("host", host, "users", ""))
    check_exposure(_options("host", host, "users", "", "tls", ""))
    check_exposure(_options("host", host, "users", "", "proxy", "det.example.org"))


def test_a_proxy_exposes_a_loopback_address() -> None:
    with pytest.raises(Exception, match="add --users"):
        check_exposure(_options("proxy", "det.example.org"))
    for host in ("127.0.0.1", "::1", "localhost", "127.9.9.9"):
        check_exposure(_options("host", host))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "add --users"),
        (["--tls-cert", "c.pem"], "both files"),
        (["--users", "--proxy-host", "x", *CERTIFICATE], "leave out either"),
        (["--users"], "det user create NAME --role admin"),
        (["--port", "99999"], "--port 99999"),
        (["--tls-cert", "nothing.pem", "--tls-key", "nothing.pem"], "nothing.pem"),
        (["--store", "https://other.example"], "expected a database"),
    ],
    ids=str,
)
def test_errors_say_what_to_type(
    det_home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["server", "--no-browser", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_users_need_an_admin_who_can_log_in(store: TrackingStore, capsys: pytest.CaptureFixture[str]) -> None:
    store.create_user("ann", role=Role.USER, password=hash_password(PASSWORD))
    store.create_user("root", role=Role.ADMIN, password="")
    assert main(["server", "--users", "--port", "0", "--no-browser"]) == 1
    assert "no admin can log in yet" in capsys.readouterr().err


def _listening(server: ServerProcess) -> list[Any]:
    """Return the addresses at which a server listens."""
    connections = psutil.Process(server.process.pid).net_connections("inet")
    return [connection.laddr for connection in connections if connection.status == "LISTEN"]


def test_a_taken_port_is_an_error(det_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["server", "--no-browser", "--port", str(taken.getsockname()[1])]) == 1
    assert "choose another port" in capsys.readouterr().err


@pytest.mark.integration
def test_a_local_server_prints_its_url_and_lets_this_user_in(det_home: Path) -> None:
    with running_server() as server:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}", server.link)
        cookie = server.client.get(server.link.partition(str(server.client.address[1]))[2]).cookie
        assert cookie and server.client.get("/experiments", Cookie=cookie).status == 200
        url = server.link.partition("/?")[0]
        token = find_token(url)
        assert token and token != server.token
        assert server.client.get("/api/info", Authorization=f"Bearer {token}").status == 200
        arguments = " ".join(psutil.Process(server.process.pid).cmdline())
        assert server.token not in arguments and token not in arguments
        assert [address.ip for address in _listening(server)] == ["127.0.0.1"]
        for path in det_home.rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 or path.name == "tokens.lock", path
        server.client.get(f"/experiments?token={server.token}")
        server.client.get(f"/no-such-page?token={server.token}", Host="evil.example")
        server.process.terminate()
        _, log = server.process.communicate(timeout=LIMIT)
        assert server.process.returncode == 143
        assert server.token not in log and token not in log
    with running_server() as again:
        assert again.token != server.token
        assert again.client.get(f"/?token={server.token}").status == 401
        assert again.client.get("/api/info", Authorization=f"Bearer {token}").status == 200, "commands need no new one"


@pytest.mark.integration
@pytest.mark.soak
def test_a_server_starts_in_a_second(det_home: Path) -> None:
    used = []
    for _ in range(3):  # other processes of this machine slow some of them down
        with running_server() as server:
            used.append(sum(psutil.Process(server.process.pid).cpu_times()[:2]))
    assert min(used) < 1, f"{used} s of CPU until it answers"


@pytest.mark.integration
@pytest.mark.soak
def test_an_idle_server_costs_nothing(det_home: Path) -> None:
    with running_server() as server:
        process = psutil.Process(server.process.pid)
        assert server.client.get("/api/info", Authorization=f"Bearer {server.token}").status == 200
        begin, used = time.monotonic(), sum(process.cpu_times()[:2])
        time.sleep(5)  # there is no condition to wait for: the server does nothing
        share = (sum(process.cpu_times()[:2]) - used) / (time.monotonic() - begin)
    assert share <= 0.01, f"{share:.1%}"


def test_the_command_imports_no_framework_and_no_server() -> None:
    script = (
        "import sys\nfrom det_core.cli import main\n"
        "try: main(['server', '--help'])\nexcept SystemExit: pass\n"
        "print([name for name in ('starlette', 'uvicorn', 'jinja2', 'argon2', 'torch') if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT, check=True)
    assert printed.stdout.splitlines()[-1] == "[]"


def test_a_renewed_certificate_is_used(
    store: TrackingStore,
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("det_server._http_server.CERTIFICATE_SECONDS", 0.02)
    with served(store, local_access, certificate) as site:
        before = ssl.get_server_certificate(site.client.address)
        certificate[0].write_text("nonsense")
        wait_for(lambda: "cannot be used" in caplog.text)
        assert ssl.get_server_certificate(site.client.address) == before
        with monkeypatch.context() as patch:
            patch.setattr(Path, "exists", lambda _: True)  # as if the key were removed right after that
            certificate[1].unlink()
            caplog.clear()
            wait_for(lambda: "cannot be used" in caplog.text)
        write_certificate(*certificate, days=3)
        wait_for(lambda: ssl.get_server_certificate(site.client.address) != before)


def test_a_client_that_never_begins_tls_is_dropped(
    store: TrackingStore, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("det_server._http_server.HEADER_SECONDS", 0.1)
    with (
        served(store, local_access, certificate) as site,
        socket.create_connection(site.client.address, timeout=LIMIT / 2) as connection,
    ):
        assert connection.recv(1) == b""


def test_clients_that_do_not_begin_tls_give_way_to_others(
    store: TrackingStore, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("det_server._listener.MAX_CONNECTIONS", 3)
    with served(store, local_access, certificate) as site, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(site.client.address, LIMIT)) for _ in range(3)]
        assert ssl.get_server_certificate(site.client.address, timeout=LIMIT)
        assert silent[0].recv(1) == b"", "the oldest"
        assert select.select(silent[1:], [], [], 0) == ([], [], [])
        context = ssl.create_default_context(cafile=str(certificate[0]))
        for _ in range(3):  # they do not answer the end of TLS either
            one = socket.create_connection(site.client.address, LIMIT)
            one = stack.enter_context(context.wrap_socket(one, server_hostname="localhost"))
            one.sendall(b"x\r\n\r\n")
            assert one.recv(12) == b"HTTP/1.1 400"
        assert ssl.get_server_certificate(site.client.address, timeout=LIMIT)


@pytest.mark.integration
def test_tls(store: TrackingStore, certificate: tuple[Path, Path]) -> None:
    store.create_user("root", role=Role.ADMIN, password=hash_password(PASSWORD))
    cert, key = map(str, certificate)
    with running_server("--users", "--tls-cert", cert, "--tls-key", key) as server:
        assert server.link.startswith("https://det.test:")
        port = int(server.link.rpartition(":")[2])
        context = ssl.create_default_context(cafile=cert)
        request = urllib.request.Request(f"https://localhost:{port}/login")
        with urllib.request.urlopen(request, context=context, timeout=LIMIT) as answer:
            assert answer.headers["strict-transport-security"] is None, "other ports of the host may have no TLS"
        body = f"user=root&password={PASSWORD.replace(' ', '+')}".encode()
        cookies = list(_cookies(port, context, body))
        assert len(cookies) == 2, "the session and the device"
        assert all(cookie.startswith("__Host-") and "HttpOnly" in cookie for cookie in cookies)
        assert store.access_tokens("root")


def _cookies(port: int, context: ssl.SSLContext, body: bytes) -> Iterator[str]:
    import http.client

    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=LIMIT)
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"https://localhost:{port}"}
    connection.request("POST", "/login", body, headers)
    answer = connection.getresponse()
    assert answer.status == 303
    yield from answer.headers.get_all("set-cookie") or ()
    connection.close()


@pytest.mark.parametrize("kind", ["expired", "other key", "no certificate"])
def test_a_certificate_that_browsers_would_refuse_is_refused_at_the_start(
    tmp_path: Path, certificate: tuple[Path, Path], capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    cert, key = certificate
    if kind == "expired":
        write_certificate(cert, key, days=-1)
    elif kind == "other key":
        write_certificate(tmp_path / "other.pem", key, days=2)
    else:
        cert.write_text("x")
    assert main(["server", "--no-browser", "--port", "0", "--tls-cert", str(cert), "--tls-key", str(key)]) == 1
    assert "cannot be used for TLS" in capsys.readouterr().err


def test_behind_a_proxy_the_reported_address_counts_and_the_name_is_that_of_the_proxy(
    store: TrackingStore, quick_passwords: None
) -> None:
    site = site_without_server(store, account_access, "det.example.org")
    site.add_user("root", Role.ADMIN)
    assert site.site.url == "https://det.example.org"
    client = site.client.with_headers(Host="det.example.org")
    assert client.get("/login", Host="127.0.0.1:8080").status == 403
    login = {"user": "root", "password": PASSWORD}
    origin = {"Origin": "https://det.example.org"}
    answer = client.post("/login", login, X_Forwarded_For="203.0.113.9, 198.51.100.7", **origin)
    assert answer.status == 303 and answer.cookie
    assert store.actions()[0].address == "198.51.100.7"
    session, device = answer.headers.get_all("set-cookie") or ()
    logout = client.post("/logout", Cookie=answer.cookie, **origin)
    assert logout.status == 303
    for cookie in (session, device, str(logout.headers["set-cookie"])):  # as browsers demand it of this prefix
        assert cookie.startswith("__Host-det-8080") and {"Secure", "Path=/"} <= {*cookie.split("; ")}
        assert "domain" not in cookie.lower()


def test_clients_fill_neither_the_log_nor_the_terminal() -> None:
    now = 0.0
    lines = LineFilter(lambda: now)

    def write(line: int, text: str) -> str | None:
        record = logging.LogRecord("det.server", logging.WARNING, "a.py", line, "%s is refused", (text,), None)
        return record.getMessage() if lines.filter(record) else None

    written = [write(1, f"\x1b[2J{number}\n") for number in range(1000)]
    assert written[:11] == [*(f"{number} is refused" for number in range(10)), None]
    assert not any(written[10:])
    assert write(2, "another statement") == "another statement is refused"
    now = 10.0
    assert [write(1, "x"), write(1, "x")] == ["x is refused (and 990 like it before)", "x is refused"]


def test_the_browser_gets_no_token_as_an_argument(det_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    open_browser("http://127.0.0.1:8080/?token=t0ken&x=1")
    (url,) = wait_for(lambda: opened)
    assert url.startswith("file:///") and "t0ken" not in url
    file = Path(url.removeprefix("file://"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "url=http://127.0.0.1:8080/?token=t0ken&amp;x=1" in file.read_text()
