"""The login of one connection on a broker, from the handshake to the principal.

INITIAL: ApiVersions, once, or a handshake. HANDSHAKE: only a handshake. AUTHENTICATE: the
mechanism's messages in SaslAuthenticate requests. RAW: the same in bare frames, after a handshake
of version 0. Then COMPLETE or FAILED.

Kafka: org.apache.kafka.common.security.authenticator.SaslServerAuthenticator.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateResponse
from ottla.protocol.apis.sasl_handshake import SaslHandshakeResponse
from ottla.security.principal import USER_TYPE, Principal
from ottla.security.sasl.gssapi import GSSAPI
from ottla.security.sasl.mechanism import AuthenticationFailed, InvalidToken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.security.sasl.mechanism import Mechanism

_NEUTRAL: Final = (
    "Authentication failed during {} due to invalid credentials with SASL mechanism {}"
)
_RAW_HANDSHAKE: Final = 0


class LoginState(Enum):
    """The states of a login."""

    INITIAL = "initial"
    HANDSHAKE = "handshake"
    AUTHENTICATE = "authenticate"
    RAW = "raw"
    COMPLETE = "complete"
    FAILED = "failed"


class SaslServer:
    """One login, or one repeated login of a connection (KIP-368)."""

    def __init__(
        self,
        mechanisms: Mapping[str, Callable[[], Mechanism]],
        *,
        max_session_ms: Callable[[str], int],
        previous: SaslServer | None = None,
    ) -> None:
        """Take the enabled mechanisms, connections.max.reauth.ms by mechanism, 0 for no limit.

        previous is the login that is repeated: by the same mechanism, for the same principal.
        """
        self._mechanisms = mechanisms
        self._max_session_ms = max_session_ms
        self._previous = previous
        self.state = LoginState.INITIAL if previous is None else LoginState.HANDSHAKE
        self.mechanism = ""
        self._login: Mechanism | None = None
        self.principal: Principal | None = None
        self.session_lifetime_ms = 0
        """How long the session lasts, 0 without a limit."""
        self.failure: str | None = None
        """Why the login failed, for the log; it names no secret."""

    @property
    def waits(self) -> bool:
        """Whether a step may block on files, and has to run in a worker."""
        return self.mechanism == GSSAPI

    @property
    def is_over(self) -> bool:
        """Whether no further message is expected."""
        return self.state in {LoginState.COMPLETE, LoginState.FAILED}

    def versions_requested(self, *, is_supported: bool) -> bool:
        """Whether ApiVersions may be answered now: at most once, before the handshake.

        A client whose version is not supported learns of it and asks again (KIP-511).
        """
        if self.state is not LoginState.INITIAL:
            self._fail("unexpected ApiVersions request")
            return False
        if is_supported:
            self.state = LoginState.HANDSHAKE
        return True

    def handshake(self, mechanism: str, version: int) -> SaslHandshakeResponse:
        """Choose a mechanism."""
        assert self.state in {LoginState.INITIAL, LoginState.HANDSHAKE}, self.state
        names = list(self._mechanisms)
        previous = self._previous
        if mechanism not in self._mechanisms:
            self._fail(f"unsupported SASL mechanism {mechanism[:40]!r}")
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            return SaslHandshakeResponse(error_code=int(code), mechanisms=names)
        if previous is not None and previous.mechanism != mechanism:
            # the client learns it from the answer to its first message, as in Kafka
            self.failure = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for "
                f"re-authentication of mechanism '{previous.mechanism}'"
            )
        self.mechanism = mechanism
        self._login = self._mechanisms[mechanism]()
        self.state = LoginState.RAW if version == _RAW_HANDSHAKE else LoginState.AUTHENTICATE
        return SaslHandshakeResponse(mechanisms=names)

    def evaluate(self, token: bytes, now_ms: Callable[[], int]) -> bytes:
        """Answer a message of the mechanism; KafkaError SASL_AUTHENTICATION_FAILED ends it.

        The time is read after the message: a mechanism may wait for others meanwhile.
        """
        login = self._login
        assert login is not None, self.state
        try:
            if self.failure is not None:
                raise AuthenticationFailed(self.failure)
            answer = login.evaluate(token)
            if login.is_complete:
                self._complete(login, now_ms())
        except AuthenticationFailed as error:
            self._fail(str(error))
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from error
        except InvalidToken as error:
            purpose = "authentication" if self._previous is None else "re-authentication"
            text = _NEUTRAL.format(purpose, self.mechanism)
            reason = str(error)
            self._fail(f"{text}: {reason}" if reason else text)
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, text) from error
        return answer

    def evaluate_or_fail(self, token: bytes, now_ms: Callable[[], int]) -> bytes | None:
        """Answer a message of the mechanism, None when it ends the login."""
        try:
            return self.evaluate(token, now_ms)
        except KafkaError:
            return None

    def authenticate(self, token: bytes, now_ms: Callable[[], int]) -> SaslAuthenticateResponse:
        """Answer a SaslAuthenticate request."""
        try:
            answer = self.evaluate(token, now_ms)
        except KafkaError as error:
            return SaslAuthenticateResponse(
                error_code=int(error.code), error_message=error.message, auth_bytes=b""
            )
        return SaslAuthenticateResponse(
            error_message=None, auth_bytes=answer, session_lifetime_ms=self.session_lifetime_ms
        )

    def _complete(self, login: Mechanism, now_ms: int) -> None:
        principal = Principal(USER_TYPE, login.user, login.is_token)
        previous = self._previous
        if previous is not None and previous.principal != principal:
            raise AuthenticationFailed(
                "Cannot change principals during re-authentication from "
                f"{previous.principal}: {principal}"
            )
        limits = [limit for limit in (self._max_session_ms(self.mechanism),) if limit > 0]
        if login.expires_ms is not None:
            if login.expires_ms <= now_ms:
                raise InvalidToken
            limits.append(login.expires_ms - now_ms)
        self.session_lifetime_ms = min(limits, default=0)
        self.principal = principal
        self.state = LoginState.COMPLETE

    def _fail(self, reason: str) -> None:
        self.state = LoginState.FAILED
        self.failure = reason
