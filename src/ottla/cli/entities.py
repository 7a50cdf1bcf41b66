"""Entity types of `configs`: resources, quotas of users, clients and addresses, SCRAM credentials.

Kafka: kafka.admin.ConfigCommand.{describeResourceConfig, alterConfig, alterQuotaConfigs,
describeClientQuotaAndUserScramCredentialConfigs, alterUserScramCredentialConfigs} (KIP-554).
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, NamedTuple

import click

from ottla.cli.options.flags import print_json, wants_json
from ottla.cli.options.joptsimple import java_integer
from ottla.cli.output.failures import ToolError
from ottla.clients.admin.configs import (
    AlterOperation,
    ConfigChange,
    ConfigResource,
)
from ottla.clients.admin.quotas import QuotaChange
from ottla.config.definition import double_text
from ottla.errors import ErrorCode, KafkaError
from ottla.views.configs import (
    ALL_BROKERS,
    QUOTA_ENTITIES,
    RESOURCE_TYPES,
    config_entries,
    configs_document,
    credentials,
    quotas,
    resource_names,
    source_name,
)

if TYPE_CHECKING:
    from ottla.clients.admin.configs import ConfigEntry
    from ottla.clients.blocking import Admin

USER_AND_CLIENT_KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
ADDRESS_KEYS = ("connection_creation_rate",)
# As Double.parseDouble, without NaN and infinity, which are no limits.
_DOUBLE = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_SHOWN = (("user", "user-principal"), ("client-id", "client-id"), ("ip", "ip"))
MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
SCRAM_KEYS = tuple(MECHANISMS)
MIN_ITERATIONS = 4096
SALT_BYTES = 32
_PASSWORD = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)")


# ---------------------------------------------------------------- quotas


def describe_quotas(admin: Admin, types: list[str], names: list[str]) -> None:
    """Print the quotas of entities of exactly these types, and users' credentials."""
    limits_by_entity = quotas(admin, types, names)
    if wants_json():
        entities = [
            {"entity": dict(entity), "limits": limits}
            for entity, limits in limits_by_entity.items()
        ]
        shown = credentials(admin, types, names)
        print_json({"quotas": entities, "scram_credentials": shown})
        return
    for entity, limits in limits_by_entity.items():
        parts = dict(entity)
        text = ", ".join(
            f"the default {word}" if parts[kind] is None else f"{word} '{parts[kind]}'"
            for kind, word in _SHOWN
            if kind in parts
        )
        values = ", ".join(f"{key}={double_text(value)}" for key, value in limits.items())
        click.echo(f"Quota configs for {text} are {values}")
    for user, mechanisms in credentials(admin, types, names).items():
        values = ", ".join(f"{name}=iterations={count}" for name, count in mechanisms.items())
        click.echo(f"SCRAM credential configs for user-principal '{user}' are {values}")


def alter_quotas(
    admin: Admin, types: list[str], names: list[str], added: dict[str, str], deleted: list[str]
) -> None:
    """Set and remove the quotas of one entity; raises KafkaError, ToolError with Kafka's text."""
    _check_keys(types, names, added, deleted)
    if any(key in SCRAM_KEYS for key in (*added, *deleted)):
        _alter_credentials(admin, names[0], added, deleted)
        return
    entity = {QUOTA_ENTITIES[kind]: name or None for kind, name in zip(types, names, strict=False)}
    known = quotas(admin, types, names).get(frozenset(entity.items()), {})
    missing = [key for key in deleted if key not in known]
    if missing:
        raise ToolError(f"Invalid config(s): {','.join(missing)}")
    limits: dict[str, float | None] = {key: _number(key, text) for key, text in added.items()}
    limits.update(dict.fromkeys(deleted))
    for error in admin.alter_client_quotas([QuotaChange(entity, limits)]).values():
        if error is not None:
            raise error


def _number(key: str, text: str) -> float:
    match = _DOUBLE.fullmatch(text.strip())
    if match is None:
        raise ToolError(f"Cannot parse quota configuration value for {key}: {text}")
    return float(match[1])


def _check_keys(
    types: list[str], names: list[str], added: dict[str, str], deleted: list[str]
) -> None:
    if types[0] == "ips":
        unknown = [key for key in (*added, *deleted) if key not in ADDRESS_KEYS]
        if unknown:
            raise ToolError(
                "Only connection quota configs can be added for 'ips' using --bootstrap-server. "
                f"Unexpected config names: {','.join(unknown)}"
            )
        return
    only_user = types == ["users"]
    allowed = (*USER_AND_CLIENT_KEYS, *SCRAM_KEYS) if only_user else USER_AND_CLIENT_KEYS
    what = "quota and SCRAM credential configs" if only_user else "quota configs"
    whose = "users" if only_user else "clients"
    for keys, done, collection in ((added, "added", "Set"), (deleted, "deleted", "ArrayBuffer")):
        unknown = [key for key in keys if key not in allowed]
        if unknown:
            raise ToolError(
                f"Only {what} can be {done} for '{whose}' using --bootstrap-server. Unexpected "
                f"config names: {collection}({', '.join(unknown)})"
            )
    if any(key in SCRAM_KEYS for key in (*added, *deleted)):
        _check_credentials(names, added, deleted)


def _check_credentials(names: list[str], added: dict[str, str], deleted: list[str]) -> None:
    if "" in names:
        raise ToolError(
            "The use of --entity-default or --user-defaults is not allowed with User SCRAM "
            "Credentials using --bootstrap-server."
        )
    if any(key in USER_AND_CLIENT_KEYS for key in (*added, *deleted)):
        raise ToolError(
            "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' "
            "using --bootstrap-server."
        )


# ---------------------------------------------------------------- SCRAM credentials


class Credential(NamedTuple):
    """A password for one mechanism."""

    mechanism: str
    iterations: int
    password: str


def _alter_credentials(admin: Admin, user: str, added: dict[str, str], deleted: list[str]) -> None:
    """Set and remove credentials of a user; raises KafkaError, ToolError with Kafka's text."""
    from ottla.clients.admin.security import salted_password
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


# ---------------------------------------------------------------- resources


def describe_resources(admin: Admin, kind: str, name: str | None, *, describe_all: bool) -> None:
    """Print the settings of one resource, or of all of a kind (name None); '' is the default."""
    if name is None:
        names = resource_names(admin, kind) + ([ALL_BROKERS] if kind == "brokers" else [])
    elif name == ALL_BROKERS or describe_all or name in resource_names(admin, kind):
        names = [name]
    else:
        click.echo(f"The {kind[:-1]} '{name}' doesn't exist and doesn't have dynamic config.")
        return
    documents = []
    for resource in names:
        if not wants_json() and resource == ALL_BROKERS:
            click.echo(f"Default configs for {kind} in the cluster are:")
        elif not wants_json():
            extent = "All" if describe_all else "Dynamic"
            click.echo(f"{extent} configs for {kind[:-1]} {resource} are:")
        entries = config_entries(admin, kind, resource, describe_all=describe_all)
        if wants_json():
            documents.append(configs_document(kind, resource, entries))
        else:
            click.echo("".join(f"{_line(entry)}\n" for entry in entries), nl=False)
    if wants_json():
        print_json(documents)


def _line(entry: ConfigEntry) -> str:
    synonyms = ", ".join(
        f"{source_name(synonym.source)}:{synonym.name}={_text(synonym.value)}"
        for synonym in entry.synonyms
    )
    sensitive = str(entry.is_sensitive).lower()
    return f"  {entry.name}={_text(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _text(value: str | None) -> str:
    return "null" if value is None else value


def alter_resource(
    admin: Admin, kind: str, name: str, added: dict[str, str], deleted: list[str]
) -> None:
    """Set and remove settings of one resource; raises KafkaError, ToolError (unknown loggers)."""
    if kind == "broker-loggers":
        known = {entry.name for entry in config_entries(admin, kind, name, describe_all=True)}
        unknown = [key for key in (*deleted, *added) if key not in known]
        if unknown:
            raise ToolError(f"Invalid broker logger(s): {','.join(unknown)}")
    resource = ConfigResource(RESOURCE_TYPES[kind], name)
    changes = [ConfigChange(key, value) for key, value in added.items()]
    changes += [ConfigChange(key, None, AlterOperation.DELETE) for key in deleted]
    error = admin.alter_configs({resource: changes})[resource]
    if error is not None:
        raise error
