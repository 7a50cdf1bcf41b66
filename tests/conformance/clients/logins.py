"""Third-party clients that log in, as programs of one command line.

    PROGRAM FILE TOPIC

A line of the file is a login (`login_lines.Login`): its fields with tabs between them. With each
one the program produces a record, whose value is the login's name, to partition 0 of the topic and
reads it back; it says "NAME in VALUE", or "NAME refused ERROR" with the client's own error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tests.conformance.clients.stock import (
    Client,
    go_program,
    java_program,
    node_program,
    python_program,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class LoginClient(NamedTuple):
    """A client, and what its errors say of a refused password, token, certificate."""

    client: Client
    refused_password: str
    refused_token: str
    refused_certificate: str

    def refusal(self, name: str) -> str:
        """Return what the client says of the bad login of this name."""
        if name.startswith("SSL"):
            return self.refused_certificate
        return self.refused_token if "OAUTHBEARER" in name else self.refused_password


def _with_word(command: Callable[[], list[str]], word: str) -> Callable[[], list[str]]:
    return lambda: [*command(), word]


LOGIN_CLIENTS: Final = (
    LoginClient(
        Client("java", java_program("LoginClient")),
        "SaslAuthenticationException: Authentication failed",
        "SaslAuthenticationException",
        "SslAuthenticationException",
    ),
    LoginClient(
        Client("confluent-kafka", python_program("confluent_kafka", "confluent_kafka_logins")),
        "_AUTHENTICATION",
        "invalid_token",
        "alert certificate required",
    ),
    LoginClient(
        Client("aiokafka", python_program("aiokafka", "aiokafka_logins")),
        "SaslAuthenticationFailed",
        "SaslAuthenticationFailed",
        "KafkaConnectionError",
    ),
    LoginClient(
        Client("kafkajs", node_program("logins.js")),
        "KafkaJSSASLAuthenticationError",
        "Closed connection",  # it takes the broker's first answer for a success
        "alert certificate required",
    ),
    LoginClient(
        Client("franz-go", _with_word(go_program("go"), "logins")),
        "SASL_AUTHENTICATION_FAILED",
        "unexpected data in oauth response",
        "certificate required",
    ),
    LoginClient(
        Client("sarama", _with_word(go_program("sarama"), "logins")),
        "SASL Authentication",
        "SASL Authentication",
        "certificate required",
    ),
)
