"""GSSAPI: Kerberos' tokens, the layer "none", and the rules from principals to names.

Kafka: com.sun.security.sasl.gsskerb.{GssKrb5Server, GssKrb5Client}, of Java (RFC 4752);
org.apache.kafka.common.security.kerberos.{KerberosName, KerberosRule, KerberosShortNamer}.
"""

from __future__ import annotations

import logging
import re
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.errors import ErrorCode, KafkaError
from ottla.security.java_regex import compile_java, replace_all
from ottla.security.sasl.mechanism import InvalidToken

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

RULES: Final = "sasl.kerberos.principal.to.local.rules"
_NAME: Final = re.compile(r"([^/@]*)(/([^/@]*))?@([^/@]*)")
_RULE: Final = re.compile(
    r"(?P<default>DEFAULT)|RULE:\[(?P<count>\d*):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<pattern>[^/]*)/(?P<replacement>[^/]*)/(?P<repeat>g)?)?/?(?P<case>[LU])?",
    re.ASCII,
)
_PARAMETER: Final = re.compile(r"\$(\d*)", re.ASCII)
_NOT_SIMPLE: Final = re.compile("[/@]")


class NoMatchingRule(ValueError):
    """A principal name that no rule maps."""


class KerberosName(NamedTuple):
    """`service/host@REALM`, where host and realm may be missing."""

    service: str
    host: str | None = None
    realm: str | None = None

    def __str__(self) -> str:
        host = "" if self.host is None else f"/{self.host}"
        return f"{self.service}{host}" + ("" if self.realm is None else f"@{self.realm}")


def parse_name(text: str) -> KerberosName:
    """Read a principal's name; ValueError when it is malformed."""
    match = _NAME.fullmatch(text)
    if match is not None:
        return KerberosName(match[1], match[3], match[4])
    if "@" in text:
        raise ValueError(f"Malformed Kerberos name: {text}")
    return KerberosName(text)


class KerberosRule(NamedTuple):
    """One rule; the default one takes the first component of names of the default realm."""

    text: str
    default_realm: str | None
    """Set for DEFAULT only."""
    components: int = 0
    format: str = ""
    match: re.Pattern[str] | None = None
    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    repeats: bool = False
    case: str = ""

    def apply(self, parameters: Sequence[str]) -> str | None:
        """Return the short name for realm and components, None when the rule does not fit."""
        if self.default_realm is not None:
            found = parameters[1] if self.default_realm == parameters[0] else None
        else:
            found = self._replaced(parameters)
        if found is not None and _NOT_SIMPLE.search(found):
            raise NoMatchingRule(f"Non-simple name {found} after auth_to_local rule {self.text}")
        if found is None or not self.case:
            return found
        return found.lower() if self.case == "L" else found.upper()

    def _replaced(self, parameters: Sequence[str]) -> str | None:
        if len(parameters) - 1 != self.components:
            return None
        base = _PARAMETER.sub(lambda found: self._parameter(found[1], parameters), self.format)
        if self.match is not None and self.match.fullmatch(base) is None:
            return None
        if self.pattern is None:
            return base
        try:
            return replace_all(self.pattern, self.replacement, base, only_first=not self.repeats)
        except ValueError as error:
            raise NoMatchingRule(f"{error} in rule {self.text}") from error

    def _parameter(self, number: str, parameters: Sequence[str]) -> str:
        if not number:
            raise NoMatchingRule(f"bad format in username mapping in {number}")
        last, index = len(parameters) - 1, int(number[:9])
        if index > last:
            text = f"index {number} from {self.format} is outside of the valid range 0 to {last}"
            raise NoMatchingRule(text)
        return parameters[index]


def parse_kerberos_rules(rules: Sequence[str], default_realm: str) -> tuple[KerberosRule, ...]:
    """Read sasl.kerberos.principal.to.local.rules; ValueError when one is invalid."""
    return tuple(_parse_rule(rule.strip(), default_realm) for rule in rules)


def _parse_rule(rule: str, default_realm: str) -> KerberosRule:
    found = _RULE.match(rule)
    if found is None:
        raise ValueError(f"Invalid rule: {rule}")
    if found.end() != len(rule):
        left = rule[found.end() :]
        raise ValueError(f"Invalid rule: `{rule}`, unmatched substring: `{left}`")
    if found["default"]:
        return KerberosRule(rule, default_realm)
    match, pattern = found["match"], found["pattern"]
    try:
        return KerberosRule(
            rule,
            None,
            int(found["count"]),
            found["format"],
            None if match is None else compile_java(match),
            None if pattern is None else compile_java(pattern),
            found["replacement"] or "",
            found["repeat"] is not None,
            found["case"] or "",
        )
    except ValueError as error:
        raise ValueError(f"Invalid rule: {rule}: {error}") from error


def kerberos_short_name(name: KerberosName, rules: Sequence[KerberosRule]) -> str:
    """Return the name by the first rule that fits; NoMatchingRule when none does."""
    if name.host is None and name.realm is None:
        return name.service
    realm = name.realm or ""
    parameters = [realm, name.service] + ([] if name.host is None else [name.host])
    for rule in rules:
        found = rule.apply(parameters)
        if found is not None:
            return found
    shown = ", ".join(rule.text for rule in rules)
    raise NoMatchingRule(f"No rules apply to {name}, rules [{shown}]")


log = logging.getLogger("ottla.login")
GSSAPI: Final = "GSSAPI"
_NO_LAYER: Final = 1
_SERVER_BUFFER_BYTES: Final = 65_536
"""The size that Java's server announces; it has no effect without a security layer."""
_OFFER: Final = bytes([_NO_LAYER]) + _SERVER_BUFFER_BYTES.to_bytes(3, "big")
_OFFER_BYTES: Final = 4


class ContextFailed(Exception):
    """A Kerberos token that is refused or cannot be made; the text contains no secret."""


class SecurityContext(Protocol):
    """The part of a Kerberos context that the mechanism uses; all methods raise ContextFailed."""

    def step(self, token: bytes | None) -> bytes:
        """Take the other side's token, None to begin; return the next one, or no bytes."""

    @property
    def is_complete(self) -> bool:
        """Whether both sides are authenticated."""

    @property
    def initiator(self) -> str:
        """The name of the client's principal, once complete."""

    def wrap(self, message: bytes) -> bytes:
        """Sign a message."""

    def unwrap(self, message: bytes) -> bytes:
        """Check a signed message and return it."""


class _Step(Enum):
    """The message that the server expects next."""

    CONTEXT = "context"
    EMPTY = "empty"
    """The client's empty answer to the last token."""
    LAYER = "layer"


class GssapiServer:
    """One login on a node."""

    def __init__(self, context: SecurityContext, rules: Sequence[KerberosRule]) -> None:
        self._context = context
        self._rules = rules
        self._step = _Step.CONTEXT
        self.user = ""
        self.is_complete = False
        self.is_token = False
        self.expires_ms: int | None = None
        """None, as in Kafka: a session does not end with the ticket."""

    def evaluate(self, token: bytes) -> bytes:
        """Process a Kerberos token, offer the security layer, or process the client's choice."""
        try:
            if self._step is _Step.CONTEXT:
                return self._token(token)
            if self._step is _Step.EMPTY:
                if token:
                    raise InvalidToken("an empty message was expected")
                return self._offer()
            return self._choice(self._context.unwrap(token))
        except ContextFailed as error:
            raise InvalidToken(str(error)) from error

    def _token(self, token: bytes) -> bytes:
        answer = self._context.step(token)
        if not self._context.is_complete:
            return answer
        self._step = _Step.EMPTY
        return answer or self._offer()

    def _offer(self) -> bytes:
        self._step = _Step.LAYER
        return self._context.wrap(_OFFER)

    def _choice(self, message: bytes) -> bytes:
        """Take the chosen layer; the authorization id that may follow is ignored, as in Kafka."""
        if len(message) < _OFFER_BYTES or not message[0] & _NO_LAYER:
            raise InvalidToken("the client chose a security layer that was not offered")
        name = self._context.initiator
        try:
            self.user = kerberos_short_name(parse_name(name), self._rules)
        except ValueError as error:
            text = f"Failed to set name for {name!r} based on Kerberos authentication rules"
            raise InvalidToken(f"{text}: {error}") from error
        if not self.user:
            raise InvalidToken(f"the Kerberos authentication rules leave nothing of {name!r}")
        self.is_complete = True
        return b""


def gssapi_messages(
    begin: Callable[[], SecurityContext], authorization_id: str
) -> Generator[bytes, bytes, None]:
    """Yield a client's messages; KafkaError when Kerberos refuses."""
    try:
        context = begin()
        token = context.step(None)
        while not context.is_complete or token:
            answer = yield token
            if context.is_complete:
                break
            token = context.step(answer)
        else:
            answer = yield b""
        offer = context.unwrap(answer)
        if len(offer) != _OFFER_BYTES or not offer[0] & _NO_LAYER:
            raise ContextFailed("No common protection layer between client and server")
        yield context.wrap(bytes([_NO_LAYER, 0, 0, 0]) + authorization_id.encode())
    except ContextFailed as error:
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"GSSAPI: {error}") from error
