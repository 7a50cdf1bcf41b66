"""The login of a connection on a SASL listener, which precedes every request.

Only ApiVersions, SaslHandshake and SaslAuthenticate are read from a client without a login. After
the login the connection's frames go directly to the listener's handler, unless the session has a
lifetime (KIP-368): that is checked at each request.

Kafka: org.apache.kafka.common.network.SaslChannelBuilder, SaslServerAuthenticator, KafkaChannel.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.network.limits import FRAME_GRACE_MS
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.api_versions import ApiVersionsRequest
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.frames import encode_response
from ottla.protocol.request_header import split_header
from ottla.security.sasl.server import LoginState
from ottla.server.requests.api import codec_form

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ottla.clock import Clock
    from ottla.network.connection import Connection
    from ottla.network.limits import PendingLogins
    from ottla.network.server import Listener
    from ottla.protocol.request_header import Header
    from ottla.protocol.schema import Request, Response
    from ottla.security.sasl.server import SaslServer
    from ottla.types import SendItem

    Run = Callable[[Callable[[], Any], Callable[[Any, Exception | None], None]], None]

log = logging.getLogger("ottla.login")
_MIN_REAUTHENTICATION_MS: Final = 1000
"""Minimum time between two logins of a connection."""
_KEY_BYTES: Final = 2
_HANDSHAKE: Final = int(ApiKey.SASL_HANDSHAKE)
_IN_LOGIN: Final = frozenset({LoginState.INITIAL, LoginState.HANDSHAKE})
_handshake_form = codec_form(SaslHandshakeRequest)
_authenticate_form = codec_form(SaslAuthenticateRequest)


class LoginPolicy(NamedTuple):
    """Settings that the logins of one listener share."""

    new_server: Callable[[SaslServer | None], SaslServer]
    """Begins a login; the argument is the previous one of a reauthentication."""
    max_receive_bytes: int
    failure_delay_ms: int


class SaslLogins:
    """The security of one SASL listener."""

    def __init__(
        self,
        policy: Callable[[], LoginPolicy],
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        pending: PendingLogins,
        named: Callable[[Connection, str], None],
        run: Run,
    ) -> None:
        """policy() is called for each login: settings may change.

        named(connection, mechanism) may change the principal; ValueError refuses the connection.
        run(job, done) runs a step that may wait in a worker.
        """
        self.policy = policy
        self.named = named
        self.pending = pending
        self.run = run
        self.loop = loop
        self.clock = clock

    def accepted(self, connection: Connection, listener: Listener) -> None:
        """Begin the login of a new connection."""
        ConnectionLogin(self, connection, listener).begin()


class ConnectionLogin:
    """Handles the frames of one connection until it has logged in."""

    def __init__(self, logins: SaslLogins, connection: Connection, listener: Listener) -> None:
        self._logins = logins
        self._listener = listener
        self._policy = logins.policy()
        self._server = self._policy.new_server(None)
        self._session: SaslServer | None = None
        """The last complete login."""
        self._expires_ms: int | None = None
        """When the session ends, by the monotonic clock."""
        self._begun_ms = logins.clock.monotonic_ms()
        self._connection = connection
        self._limit: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Receive the connection's frames, for a limited time."""
        self._connection.serve(self, self._policy.max_receive_bytes)
        self._limit = self._logins.loop.call_later(FRAME_GRACE_MS / 1000, self._too_slow)

    def _too_slow(self) -> None:
        self._log("login took too long")
        self._connection.close()

    def _log(self, reason: str) -> None:
        connection = self._connection
        extra = {"event": "login.failed", "client": connection.peer_host}
        name = connection.listener_name
        log.info("failed login on %s from %s: %s", name, connection.peer_host, reason, extra=extra)

    def connection_closed(self, connection: Connection) -> None:
        """Forget the connection."""
        if self._limit is not None:
            self._limit.cancel()
        self._listener.connection_closed(connection)

    def handle_frame(self, connection: Connection, frame: memoryview) -> None:
        """Handle one frame: a step of the login, or a request of a session with a lifetime."""
        if self._session is not None and not self._continues(frame):
            if not connection.is_closed:
                self._listener.handle_frame(connection, frame)
            return
        if self._server.state is LoginState.RAW:
            self._raw(frame)
            return
        try:
            header = split_header(frame)
            self._step(header, frame)
        except KafkaError as error:
            self._log(str(error))
            connection.close()

    # A session with a lifetime

    def _continues(self, frame: memoryview) -> bool:
        """Whether the frame belongs to a login; requests after the session's end are refused."""
        if self._server.state is not LoginState.COMPLETE:
            return True  # nothing else is served until the login that began is complete
        key = int.from_bytes(frame[:_KEY_BYTES], "big")
        now_ms = self._logins.clock.monotonic_ms()
        if key == _HANDSHAKE and now_ms - self._begun_ms >= _MIN_REAUTHENTICATION_MS:
            self._begun_ms = now_ms
            self._policy = self._logins.policy()  # users may have been removed meanwhile
            self._server = self._policy.new_server(self._session)
            return True
        if self._expires_ms is not None and now_ms >= self._expires_ms:
            self._log("the session has expired")
            self._connection.close()
        return False

    # Steps of a login

    def _step(self, header: Header, frame: memoryview) -> None:
        key, version, *_ = header
        server = self._server
        if key == ApiKey.API_VERSIONS and self._session is None:
            is_supported = version <= ApiVersionsRequest.versions.highest
            if not server.versions_requested(is_supported=is_supported):
                raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, server.failure)
            self._connection.is_in_login = True
            self._listener.handle_frame(self._connection, frame)
            self._connection.is_in_login = False
        elif key == ApiKey.SASL_HANDSHAKE and server.state in _IN_LOGIN:
            _check_version(SaslHandshakeRequest, version)
            request = _handshake_form.read(header[4], version)
            self._respond(header, server.handshake(request.mechanism, version))
        elif key == ApiKey.SASL_AUTHENTICATE and server.state is LoginState.AUTHENTICATE:
            _check_version(SaslAuthenticateRequest, version)
            request = _authenticate_form.read(header[4], version)
            now_ms = self._logins.clock.now_ms
            step = partial(server.authenticate, bytes(request.auth_bytes), now_ms)
            self._run_step(step, partial(self._respond, header))
        else:
            text = f"unexpected request with api key {key} in state {server.state.value}"
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, text)

    def _raw(self, frame: memoryview) -> None:
        """Evaluate a message without a request header (SaslHandshake version 0)."""
        step = partial(self._server.evaluate_or_fail, bytes(frame), self._logins.clock.now_ms)
        self._run_step(step, self._respond_raw)

    def _respond_raw(self, answer: bytes | None) -> None:
        """Answer such a message; on a failure the connection is closed, as in Kafka."""
        if answer is None:
            self._finish([], closes=True)
            return
        self._finish([len(answer).to_bytes(4, "big"), answer], closes=False)

    def _run_step(self, step: Callable[[], Any], respond: Callable[[Any], None]) -> None:
        """Run a step of the mechanism, in a worker where it may wait; one at a time."""
        if not self._server.waits:
            respond(step())
            return

        def done(answer: Any, error: Exception | None) -> None:
            if self._connection.is_closed:
                return
            if error is not None:
                self._connection.close()
                raise error
            respond(answer)

        self._logins.run(step, done)

    def _respond(self, header: Header, response: Response) -> None:
        key, version, correlation_id, *_ = header
        items = encode_response(correlation_id, key, version, response)
        self._finish(items, closes=self._server.state is LoginState.FAILED)

    def _finish(self, items: list[SendItem], *, closes: bool) -> None:
        """Answer a step; after a failed login with a delay, as the last response."""
        connection, server = self._connection, self._server
        if closes:
            self._log(server.failure or "unknown")
            delay_s = self._policy.failure_delay_ms / 1000
            self._logins.loop.call_later(delay_s, self._end, items)
            return
        if server.state is LoginState.COMPLETE:
            try:
                self._complete(server)
            except ValueError as error:
                self._log(str(error))
                connection.close()
                return
        connection.respond(items)

    def _end(self, items: list[SendItem]) -> None:
        connection = self._connection
        if items:
            connection.respond(items)
        connection.finish()

    def _complete(self, server: SaslServer) -> None:
        assert server.principal is not None, server.state
        connection, listener = self._connection, self._listener
        connection.principal = server.principal
        self._logins.named(connection, server.mechanism)
        self._logins.pending.discard(connection)
        extra = {"event": "login", "client": connection.peer_host}
        log.debug("%s logged in by %s", server.principal, server.mechanism, extra=extra)
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
        if not server.session_lifetime_ms:
            connection.serve(listener, listener.max_frame_bytes)
            return
        self._session = server
        self._expires_ms = self._logins.clock.monotonic_ms() + server.session_lifetime_ms
        connection.serve(self, listener.max_frame_bytes)


def _check_version(request: type[Request], version: int) -> None:
    if not request.versions.lowest <= version <= request.versions.highest:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
