"""`configs` for SCRAM credentials of users: described without secrets, sent salted.

Kafka: kafka.admin.ConfigCommand.alterUserScramCredentialConfigs (KIP-554).
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, NamedTuple

import click

from ottla.cli.options.failures import ToolError
from ottla.cli.options.java_numbers import java_integer
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.clients.blocking import Admin

MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
MIN_ITERATIONS = 4096
SALT_BYTES = 32
_PASSWORD = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)")


class Credential(NamedTuple):
    """A password for one mechanism."""

    mechanism: str
    iterations: int
    password: str


def describe_credentials(admin: Admin, names: list[str]) -> None:
    """Print the mechanisms and iterations of users; without names, of all users."""
    for user, mechanisms in credentials_of(admin, names).items():
        values = ", ".join(f"{name}=iterations={count}" for name, count in mechanisms.items())
        click.echo(f"SCRAM credential configs for user-principal '{user}' are {values}")


def credentials_of(admin: Admin, names: list[str]) -> dict[str, dict[str, int]]:
    """Return the iterations of users by mechanism; without names, of all users."""
    try:
        found = admin.describe_user_scram_credentials(names or None)
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return {}  # the broker stores no credentials
        raise
    known: dict[str, dict[str, int]] = {}
    for user, credentials in found.items():
        if isinstance(credentials, KafkaError):
            if credentials.code is ErrorCode.RESOURCE_NOT_FOUND:
                continue
            raise credentials
        known[user] = {
            str(credential.mechanism): credential.iterations for credential in credentials
        }
    return known


def alter_credentials(admin: Admin, user: str, added: dict[str, str], deleted: list[str]) -> None:
    """Set and remove credentials of a user; raises KafkaError, ToolError with Kafka's text."""
    from ottla.clients.admin.credentials import salted_password
    from ottla.protocol.apis.alter_user_scram_credentials import AlterUserScramCredentialsRequest

    request = AlterUserScramCredentialsRequest
    upsertions = []
    for credential in [parse_credential(key, text) for key, text in added.items()]:
        salt = secrets.token_bytes(SALT_BYTES)
        upsertions.append(
            request.ScramCredentialUpsertion(
                name=user,
                mechanism=MECHANISMS[credential.mechanism],
                iterations=credential.iterations,
                salt=salt,
                salted_password=salted_password(
                    credential.mechanism, credential.password, salt, credential.iterations
                ),
            )
        )
    deletions = [
        request.ScramCredentialDeletion(name=user, mechanism=MECHANISMS[key]) for key in deleted
    ]
    answer = admin.request(request(deletions=deletions, upsertions=upsertions))
    for result in answer.results:
        if result.error_code:
            raise KafkaError(result.error_code, result.error_message)


def parse_credential(mechanism: str, text: str) -> Credential:
    """Parse [iterations=N,]password=SECRET; raises ToolError with Kafka's text."""
    match = _PASSWORD.fullmatch(text)
    if match is None:
        name = mechanism.replace("-", "_")
        raise ToolError(f"Invalid credential property {name}={text}")
    try:
        iterations = MIN_ITERATIONS if match[1] is None else java_integer(match[1], 32)
    except ValueError as error:
        raise ToolError(str(error)) from error
    if iterations < MIN_ITERATIONS:
        raise ToolError(
            f"Iterations {iterations} is less than the minimum {MIN_ITERATIONS} required for "
            f"{mechanism}"
        )
    if not match[2]:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Password must not be empty")
    return Credential(mechanism, iterations, match[2])
