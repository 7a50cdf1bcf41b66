"""Who may use the REST API: logins, roles, origins of web pages.

Kafka: org.apache.kafka.connect.rest.basic.auth.extension.{JaasBasicAuthFilter,
PropertyFileLoginModule}; roles, and the refusal of foreign pages, are Ottla's.
"""

from __future__ import annotations

import binascii
import os
import re
from base64 import b64decode
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from starlette.responses import JSONResponse, PlainTextResponse

from ottla.config.properties import PropertiesError, parse_properties
from ottla.connect.errors import ConnectException
from ottla.http.host import FORBIDDEN, UNAUTHORIZED, names_this_machine
from ottla.security.jaas import OPTIONS_VARIABLE, login_file_path, parse_jaas, read_sections

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

EXTENSIONS: Final = "rest.extension.classes"
READ_ONLY: Final = "ottla.rest.readonly.users"
OPEN: Final = "ottla.rest.allow.unauthenticated.remote"
_BASIC: Final = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
_SECTION: Final = "KafkaConnect"
_MODULE: Final = "PropertyFileLoginModule"
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_INTERNAL: Final = (
    ("POST", re.compile(r"/?connectors/[^/]+/tasks/?")),
    ("PUT", re.compile(r"/?connectors/[^/]+/fence/?")),
)
"""Requests between workers, which are signed instead."""
_CHALLENGE: Final = {"www-authenticate": 'Basic realm="ottla", charset="UTF-8"'}


class RestAccess(NamedTuple):
    """The rules of one listener."""

    users: Mapping[str, str] | None
    """Passwords by user; None without a login."""
    readers: frozenset[str]
    is_local: bool
    """Only this machine reaches the listener."""
    internal_is_signed: bool

    def __repr__(self) -> str:
        return f"RestAccess(login={self.users is not None}, local={self.is_local})"

    def guarded(
        self, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return a page that answers only what is allowed."""

        async def guard(request: Request) -> Response:
            refusal = self.refusal(request)
            return await answer(request) if refusal is None else refusal

        return guard

    def refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that is not allowed, None for one that is."""
        host = request.headers.get("host", "localhost")
        if self.users is None and self.is_local and not names_this_machine(host):
            text = "the Host header names another machine: use localhost or 127.0.0.1\n"
            return PlainTextResponse(text, FORBIDDEN)
        # a browser adds cached logins to the requests of any page
        origin = request.headers.get("origin")
        if origin is not None and not self._is_own(origin, host):
            return PlainTextResponse("the Origin header names a page of another machine\n", 403)
        raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
        path = raw.decode("ascii", "replace").partition("?")[0]
        if self.users is None or (
            self.internal_is_signed
            and any(request.method == it and form.fullmatch(path) for it, form in _INTERNAL)
        ):
            return None
        user = self._user(request.headers.get("authorization", ""))
        if user is None:
            text = "User cannot access the resource."
            return PlainTextResponse(text, UNAUTHORIZED, headers=_CHALLENGE)
        if user in self.readers and request.method not in _READS:
            body = {"error_code": FORBIDDEN, "message": f"User {user} may only read."}
            return JSONResponse(body, FORBIDDEN)
        return None

    def _is_own(self, origin: str, host: str) -> bool:
        authority = origin.partition("://")[2]
        if self.users is None and self.is_local:
            return names_this_machine(authority)
        return authority.lower() == host.lower()

    def _user(self, header: str) -> str | None:
        """Return the user of an Authorization header; passwords are compared in constant time."""
        assert self.users is not None
        scheme, _, credentials = header.partition(" ")
        try:
            text = b64decode(credentials.strip(), validate=True).decode()
        except (binascii.Error, ValueError):
            return None
        user, colon, password = text.partition(":")
        is_same = compare_digest(password.encode(), self.users.get(user, "").encode())
        is_known = scheme.lower() == "basic" and bool(user and colon) and user in self.users
        return user if is_known and is_same else None


def read_users(values: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the users of the login that a worker's settings ask for, None without one.

    Kafka's module admits everybody while its file is empty; that file is refused. Raises
    ConnectException, whose text has no password.
    """
    classes = values[EXTENSIONS]
    unknown = [it for it in classes if it not in {_BASIC, _BASIC.rpartition(".")[2]}]
    if unknown:
        raise ConnectException(f"{EXTENSIONS}: {unknown[0]} is not there; known is {_BASIC}")
    if not classes:
        if values[READ_ONLY]:
            raise ConnectException(f"{READ_ONLY} needs {EXTENSIONS}={_BASIC}")
        return None
    file = _users_file()
    try:
        users = parse_properties(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, PropertiesError) as error:
        raise ConnectException(f"cannot read {file}: {_reason(error)}") from None
    if not users or not all(users.values()):
        raise ConnectException(f"{file}: each line is USER=PASSWORD, and there is at least one")
    missing = [it for it in values[READ_ONLY] if it not in users]
    if missing:
        raise ConnectException(f"{READ_ONLY}: {file} has no user {missing[0]}")
    return users


def _users_file() -> str:
    """Return the file that the login file of KAFKA_OPTS names."""
    path = login_file_path(os.environ.get(OPTIONS_VARIABLE, ""))
    if path is None:
        text = f"{EXTENSIONS}: {OPTIONS_VARIABLE} names no login file"
        raise ConnectException(f"{text} (-Djava.security.auth.login.config=FILE)")
    try:
        entries = read_sections(Path(path).read_text(encoding="utf-8")).get(_SECTION, [])
        modules = [parse_jaas(it) for it in entries]
    except (OSError, ValueError) as error:
        raise ConnectException(f"cannot read {path}: {_reason(error)}") from None
    if len(modules) != 1 or modules[0].module.rpartition(".")[2] != _MODULE:
        raise ConnectException(f"{path}: section {_SECTION} needs one entry, of {_MODULE}")
    file = modules[0].options.get("file")
    if not file:
        raise ConnectException("Property Credentials file must be specified")
    return file


def _reason(error: Exception) -> str:
    """Return what may be shown: a line of the file may be a password."""
    return (error.strerror or "no file") if isinstance(error, OSError) else "it is malformed"
