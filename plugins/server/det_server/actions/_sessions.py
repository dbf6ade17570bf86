"""Logins and logouts of people."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from det_server._accounts import accounts_of, end_token, make_change
from det_server._credentials import LONGEST_COOKIE, read_cookie, set_cookie
from det_server._forms import read_form
from det_server._refusal import RefusedError
from det_server._rendering import render_page
from det_server._site import site_of

_LOCAL = re.compile(r"/(?![/\\])[!-\[\]-~]{0,2000}")
"""Pattern of URLs of this server, which are one slash and then printable ASCII without spaces and backslashes."""


def show_login(request: Request) -> Response:
    """Render the page to log in."""
    if not site_of(request).has_users:
        return RedirectResponse("/", 303)
    return render_page(request, "login.html", error="", next=local_target(request.query_params.get("next", "")))


def log_in(request: Request) -> Response:
    """Create a session with a new token, end the one that the browser had, and go to the page that was asked for."""
    form = read_form(request)
    user, target = form.get("user"), local_target(form.get("next"))
    try:
        hashed = check_password(request, user, form.password("password"))
    except RefusedError as error:
        answer = render_page(request, "login.html", status_code=error.status, error=str(error), next=target)
        answer.headers.update(error.headers or {})
        return answer
    if getattr(request.state, "by_cookie", False):
        with suppress(RefusedError):  # it has ended meanwhile
            make_change(request, "logout", "", lambda: end_token(request))
    response = RedirectResponse(target, 303)
    start_session(request, response, user, hashed)
    return response


def log_out(request: Request) -> Response:
    """End the session."""
    make_change(request, "logout", "", lambda: end_token(request))
    site = site_of(request)
    response = RedirectResponse("/login" if site.has_users else "/", 303)
    response.delete_cookie(request.app.state.cookie, path="/", secure=site.is_secure, httponly=True, samesite="strict")
    response.headers["clear-site-data"] = '"cache", "storage"'
    return response


def start_session(request: Request, response: Response, user: str, password: str) -> None:
    """Create a session of a user with the hash of a password, and add its cookie to a response."""
    accounts, secure = accounts_of(request), site_of(request).is_secure
    set_cookie(response, request.app.state.cookie, accounts.create_session(user, password), secure=secure)
    device = accounts.login.remember_device(user)
    set_cookie(response, _device_cookie(request), device, secure=secure, life=LONGEST_COOKIE)


def check_password(request: Request, user: str, password: str) -> str:
    """Check the password that a browser sends, and return its hash. Raises as `Login.check`."""
    return accounts_of(request).login.check(user, password, request.state.address, partial(_find_device, request, user))


def known_user(request: Request) -> str:
    """Return the name in a login if the user has logged in with this browser before, or an empty string."""
    user = read_form(request).get("user")
    return user if _find_device(request, user) else ""


def _find_device(request: Request, user: str) -> str:
    remembered = read_cookie(request.headers, _device_cookie(request)) or ""
    return accounts_of(request).login.known_device(user, remembered)


def _device_cookie(request: Request) -> str:
    """Return the name of the cookie by which the server knows a browser again, which strangers cannot lock out."""
    return f"{request.app.state.cookie}-device"


def local_target(url: str) -> str:
    """Return a URL if it is one of this server, else that of the start page."""
    return url if _LOCAL.fullmatch(url) else "/"
