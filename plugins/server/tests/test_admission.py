"""Admission of requests: nothing is open by default, and browsers of victims are no way in."""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from det_server import actions, api, pages
from det_server._allowed_origins import AllowedHosts, is_loopback, is_same_origin
from det_server._credentials import repeat_request, without_token
from det_server.actions._sessions import local_target
from starlette.routing import Mount, Route

from .all_routes import all_routes
from .serving import LIMIT, Client, ServedSite

_PARAMETERS = {"int": "1", "str": "x"}


ROUTES = sorted(set(all_routes(_PARAMETERS.__getitem__)))
OPEN_WITH_USERS = {("GET", "/login"), ("HEAD", "/login"), ("POST", "/login"), ("POST", "/api/login")}


def test_there_are_routes_of_all_kinds() -> None:
    paths = {path for _, path in ROUTES}
    assert {"/api/store/x", "/experiments", "/experiments/1/pause", "/login"} <= paths
    assert not any(isinstance(route, Mount) for route in (*api.ROUTES, *actions.ROUTES, *pages.ROUTES))


@pytest.mark.integration
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer x"}, {"Cookie": "det-0=x"}], ids=str)
def test_no_route_answers_without_credentials_on_a_local_server(local: ServedSite, headers: dict[str, str]) -> None:
    if "Cookie" in headers:
        headers = {"Cookie": f"{local.cookie_name}=session~1~9999999999.forged"}
    for method, path in ROUTES:
        answer = _send(local.client, method, path, headers)
        expected = 400 if (method, path) == ("POST", "/api/login") else 401  # it checks what its body says
        assert answer == expected, f"{method} {path}: {answer}"
    assert local.client.call("/api/login", {"link": "x"}).status == 401
    assert local.client.call("/api/login", {"user": "root", "password": ""}).status == 404


@pytest.mark.integration
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer x"}], ids=str)
def test_no_route_answers_without_a_login_on_a_server_with_users(team: ServedSite, headers: dict[str, str]) -> None:
    for method, path in ROUTES:
        if (method, path) in OPEN_WITH_USERS or path.startswith("/static/"):
            continue
        if method in ("GET", "HEAD") and not path.startswith(("/api/", "/metrics")) and not headers:
            answer = team.client.request(method, path)
            assert (answer.status, answer.headers["location"][:13]) == (303, "/login?next=/"), f"{method} {path}"
            assert not answer.body
        else:
            assert _send(team.client, method, path, headers) == 401, f"{method} {path}"


def _send(client: Client, method: str, path: str, headers: dict[str, str]) -> int:
    body = None if method in ("GET", "HEAD", "TRACE", "OPTIONS") else b"{}"
    origin = f"http://127.0.0.1:{client.address[1]}"
    return client.request(method, path, body, {"Origin": origin, **headers}).status


@pytest.mark.parametrize("headers", [{}, {"Origin": "http://127.0.0.1:1"}], ids=str)
def test_a_viewer_can_change_nothing(team: ServedSite, headers: dict[str, str]) -> None:
    vic = team.log_in("vic")
    own = ("/login", "/logout", "/account/tokens", "/account/password", "/account/tokens/1/delete")
    posts = [path for method, path in ROUTES if method == "POST" and path not in own]
    for path in posts:
        if path.startswith("/api/") or path == "/no-such-page":
            continue
        assert vic.post(path, {}, **headers).status == 403, path


# DNS rebinding


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1:",
        "127.0.0.1:x",
        "127.0.0.1.evil.example:{port}",
        "",
        "x@127.0.0.1:{port}",
        "localhost:{port}/",
        "127.0.0.1:{port}#",
        "[::1",
        "127.0.0.1:{port}, evil.example",
        "127.1:{port}",
        "0.0.0.0:{port}",
    ],
)
def test_a_foreign_host_header_is_refused_even_with_the_token(local: ServedSite, host: str) -> None:
    header = host.format(port=local.client.address[1])
    assert local.commands.get("/api/info", Host=header).status == 403
    assert local.owner.get("/experiments", Host=header).status == 403


@pytest.mark.parametrize(
    "host", ["127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}", "LOCALHOST:{port}", "localhost:9"]
)
def test_own_names_are_accepted(local: ServedSite, host: str) -> None:
    assert local.commands.get("/api/info", Host=host.format(port=local.client.address[1])).status == 200


def test_a_request_without_or_with_two_host_headers_is_refused(served_local: ServedSite) -> None:
    address = served_local.client.address
    for lines in (b"", b"Host: 127.0.0.1:%d\r\nHost: evil.example\r\n" % address[1]):
        with socket.create_connection(address, timeout=LIMIT) as connection:
            connection.sendall(b"GET /experiments HTTP/1.1\r\n" + lines + b"\r\n")
            assert connection.recv(100).split()[1] in (b"400", b"403")


def test_a_forwarded_port_has_another_number(local: ServedSite) -> None:
    elsewhere = {"Host": "localhost:9000", "Origin": "http://localhost:9000", "Sec-Fetch-Site": "same-origin"}
    assert local.owner.post("/models", {"name": "m"}, **elsewhere).status == 303
    foreign = {**elsewhere, "Origin": local.site.url}
    assert local.owner.post("/models", {"name": "n"}, **foreign).status == 403


# Requests that other sites send


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1:{port}.evil.example"},
        {"Origin": "http://127.0.0.1:{port}", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://127.0.0.1:{port}", "Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": None},
        {"Origin": None},
    ],
    ids=str,
)
def test_a_form_of_another_site_is_refused(local: ServedSite, headers: dict[str, str | None]) -> None:
    experiment = local.store.create_experiment(config={"name": "mine"})
    sent = {name: text and text.format(port=local.client.address[1]) for name, text in headers.items()}
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = local.owner.request("POST", f"/experiments/{experiment.id}/archive", b"", {**kind, **sent})
    assert answer.status == 403
    assert not local.store.experiment(experiment.id).archived
    assert local.owner.post(f"/experiments/{experiment.id}/archive").status == 303
    assert local.store.experiment(experiment.id).archived


def test_a_form_needs_the_content_type_of_forms(local: ServedSite) -> None:
    for kind in ("text/plain", "application/json", "multipart/form-data; boundary=x"):
        assert local.owner.post("/models", {"name": "m"}, Content_Type=kind).status == 415
    assert local.store.models() == []


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_pages_of_other_sites_and_ports_can_include_nothing(local: ServedSite, site: str) -> None:
    for mode, destination in (("no-cors", "script"), ("cors", "empty"), ("navigate", "iframe"), ("navigate", "embed")):
        headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": destination}
        assert local.owner.request("GET", "/experiments", headers=headers).status == 403


def test_a_link_of_another_site_works_although_browsers_send_no_cookie_with_it(local: ServedSite) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    answer = local.client.request("GET", '/experiments?name=%22><script>"&page=2', headers=link)
    assert answer.status == 200
    assert 'content="0; url=/experiments?name=%22%3E%3Cscript%3E%22&amp;page=2"' in answer.text
    assert "<script" not in answer.text
    assert local.client.request("GET", "/experiments", headers={**link, "Sec-Fetch-Site": "same-origin"}).status == 401


def test_no_site_may_read_answers(local: ServedSite) -> None:
    answer = local.owner.get("/experiments", Origin=f"http://127.0.0.1:{local.client.address[1]}")
    assert not [name for name in answer.headers if name.lower().startswith("access-control-")]
    assert local.owner.request("OPTIONS", "/experiments").status in (403, 405)


# Headers


@pytest.mark.parametrize(
    "path", ["/experiments", "/no-such-page", "/static/det.css", "/api/info", "/api/nothing", "/login"]
)
def test_every_answer_has_the_security_headers(local: ServedSite, path: str) -> None:
    for client in (local.client, local.commands):
        answer = client.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert (
            answer.headers["cross-origin-opener-policy"]
            == answer.headers["cross-origin-resource-policy"]
            == "same-origin"
        )
        assert answer.headers["det-version"]
        checked_again = answer.status == 200 and path.startswith("/static/")
        assert answer.headers["cache-control"] == ("no-cache" if checked_again else "no-store")


# The token in the URL


def test_the_token_of_the_url_becomes_a_cookie(local: ServedSite) -> None:
    answer = local.client.get(f"/experiments?name=a&token={local.site.access.link_token}&page=2")  # type: ignore[attr-defined]
    assert (answer.status, answer.headers["location"]) == (303, "/experiments?name=a&page=2")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "path=/;" in cookie and "domain" not in cookie
    assert local.site.access.link_token not in cookie  # type: ignore[attr-defined]
    assert answer.headers["referrer-policy"] == "same-origin"
    assert local.client.get("/experiments", Cookie=answer.cookie or "").status == 200


def test_a_wrong_token_in_the_url_is_refused(local: ServedSite) -> None:
    token = local.site.access.link_token  # type: ignore[attr-defined]
    for wrong in ("", "x", token[:-1], token + "x", "%00", "%ff%fe"):
        answer = local.client.get(f"/?token={wrong}")
        assert answer.status == 401 and answer.cookie is None
    assert local.client.request("POST", f"/models?token={token}", b"").status == 401


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example/",
        "/\\evil.example",
        "/\\/evil.example",
        "///evil.example",
        "/%5Cevil.example",
        "/%2Fevil.example",
    ],
)
def test_the_redirect_stays_on_this_server(local: ServedSite, path: str) -> None:
    token = local.site.access.link_token  # type: ignore[attr-defined]
    location = local.client.get(f"{path}?token={token}").headers["location"]
    assert location.startswith("/evil.example")
    for response in (without_token("//evil.example", b"token=x"), repeat_request("/\\evil.example", b"")):
        assert b"//evil" not in response.body and "//evil" not in response.headers.get("location", "")


@pytest.mark.parametrize(
    "url",
    [
        "//evil.example",
        "/\\evil.example",
        "https://evil.example",
        "javascript:alert(1)",
        "/a b",
        "/a\r\nx: y",
        "",
        "experiments",
        "/é",
    ],
)
def test_the_login_leads_to_pages_of_this_server_only(url: str) -> None:
    assert local_target(url) == "/"
    assert local_target("/experiments?name=a&page=2") == "/experiments?name=a&page=2"


# Ids


_ATTEMPTS = [
    "../../etc/passwd",
    "..\\..\\etc\\passwd",
    "/etc/passwd",
    "file:///etc/passwd",
    "C:\\Windows",
    ".",
    "..",
    "%00",
    "~root",
    "a;b",
]


def _encodings(text: str) -> Iterator[str]:
    yield quote(text, safe="")
    yield quote(quote(text, safe=""), safe="")
    yield quote(text, safe="/")
    yield "".join(f"%{byte:02x}" for byte in text.encode())
    yield text.replace("/", "%c0%af").replace("\\", "%5c").replace(" ", "%20")


def _paths_with_ids() -> Iterator[tuple[str, str]]:
    for route in (*api.ROUTES, *actions.ROUTES, *pages.ROUTES):
        assert isinstance(route, Route)
        if "{" in route.path:
            yield ("POST" if "POST" in (route.methods or ()) else "GET"), route.path


@pytest.mark.parametrize("attempt", [*_ATTEMPTS, "-1", "1e3", "0x10", "9" * 30, "%EF%BC%91"])
def test_no_id_is_a_path(local: ServedSite, attempt: str) -> None:
    owner, commands = local.owner, local.commands
    encodings = itertools.cycle(dict.fromkeys(_encodings(attempt)))
    for (method, path), encoded in zip(_paths_with_ids(), encodings, strict=False):
        target = re.sub(r"{\w+(:\w+)?}", lambda _: encoded, path)  # noqa: B023
        if method == "POST" and not path.startswith("/api/"):
            answer = owner.post(target)
        else:
            client = commands if path.startswith("/api/") else owner
            answer = client.request(method, target, b"{}" if method == "POST" else None)
        assert answer.status in (400, 404, 405), f"{method} {target}: {answer.status}"
        assert b"root:" not in answer.body


@pytest.mark.parametrize(
    "attempt", [*_ATTEMPTS, "../_admission.py", "../../det_server/_admission.py", "vendor/../../plugin.py"]
)
def test_files_are_those_of_the_directory_only(local: ServedSite, attempt: str) -> None:
    owner = local.owner
    for encoded in {*_encodings(attempt), attempt}:
        with contextlib.suppress(ValueError):  # http.client refuses some itself
            answer = owner.get(f"/static/{encoded}")
            assert answer.status in (400, 404), encoded
            assert b"import" not in answer.body and b"root:" not in answer.body


# Names


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"])
def test_loopback_addresses(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "", "::", "192.168.1.1", "localhost.evil.example", "127.0.0.1.evil.example", "2130706433"]
)
def test_other_addresses(host: str) -> None:
    assert not is_loopback(host)


def test_names_of_a_certificate_and_of_a_proxy() -> None:
    hosts = AllowedHosts("https", ["det.example.org", "*.lab.example"])
    for name in ("det.example.org", "DET.example.org:8443", "a.lab.example"):
        assert hosts.permits_host(name)
    for name in ("example.org", "a.b.lab.example", "lab.example", "xlab.example", "det.example.org.evil"):
        assert not hosts.permits_host(name)
    assert is_same_origin({"host": "det.example.org", "origin": "https://det.example.org"}, hosts)
    for origin in ("http://det.example.org", "https://a.lab.example", "https://det.example.org:8443", "null", ""):
        assert not is_same_origin({"host": "det.example.org", "origin": origin}, hosts)
