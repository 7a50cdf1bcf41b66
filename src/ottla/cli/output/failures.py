"""How tools report failures: one line on standard error, with Java's class, and exit status 1.

Where Kafka's words do not say what to check, the next step follows in the same line.

Kafka: org.apache.kafka.common.protocol.Errors, org.apache.kafka.server.util.CommandLineUtils.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import click

from ottla.diagnosis.advice import advice_on
from ottla.errors import ConfigError, ErrorCode, KafkaError, SslAuthenticationError

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = "org.apache.kafka.common.errors"

# Classes whose names do not follow from their error codes.
_IRREGULAR = {
    "UNKNOWN_SERVER_ERROR": "UnknownServerException",
    "CORRUPT_MESSAGE": "CorruptRecordException",
    "REQUEST_TIMED_OUT": "TimeoutException",
    "MESSAGE_TOO_LARGE": "RecordTooLargeException",
    "STALE_CONTROLLER_EPOCH": "ControllerMovedException",
    "OFFSET_METADATA_TOO_LARGE": "OffsetMetadataTooLarge",
    "NETWORK_EXCEPTION": "NetworkException",
    "INVALID_TOPIC_EXCEPTION": "InvalidTopicException",
    "RECORD_LIST_TOO_LARGE": "RecordBatchTooLargeException",
    "TOPIC_AUTHORIZATION_FAILED": "TopicAuthorizationException",
    "GROUP_AUTHORIZATION_FAILED": "GroupAuthorizationException",
    "CLUSTER_AUTHORIZATION_FAILED": "ClusterAuthorizationException",
    "TOPIC_ALREADY_EXISTS": "TopicExistsException",
    "INVALID_CONFIG": "InvalidConfigurationException",
    "OUT_OF_ORDER_SEQUENCE_NUMBER": "OutOfOrderSequenceException",
    "DUPLICATE_SEQUENCE_NUMBER": "DuplicateSequenceException",
    "INVALID_PRODUCER_ID_MAPPING": "InvalidPidMappingException",
    "INVALID_TRANSACTION_TIMEOUT": "InvalidTxnTimeoutException",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "TransactionalIdAuthorizationException",
    "KAFKA_STORAGE_ERROR": "KafkaStorageException",
    "SASL_AUTHENTICATION_FAILED": "SaslAuthenticationException",
    "DELEGATION_TOKEN_AUTH_DISABLED": "DelegationTokenDisabledException",
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": "UnsupportedByAuthenticationException",
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED": "DelegationTokenAuthorizationException",
    "NON_EMPTY_GROUP": "GroupNotEmptyException",
    "INVALID_RECORD": "org.apache.kafka.common.InvalidRecordException",
    "PRINCIPAL_DESERIALIZATION_FAILURE": "PrincipalDeserializationException",
    "FETCH_SESSION_TOPIC_ID_ERROR": "FetchSessionTopicIdException",
    "INVALID_REGULAR_EXPRESSION": "InvalidRegularExpression",
}


def java_text(error: Exception) -> str:
    """Return an error as Kafka's tools print it: Java class and message."""
    code = getattr(error, "code", None)
    return str(error) if code is None else f"{java_class(error)}: {kafka_message(error)}"


def kafka_message(error: Exception) -> str:
    """Return an error's text as Kafka's tools print it."""
    return error.kafka_message if isinstance(error, KafkaError) else str(error)


def java_class(error: Exception) -> str:
    """Return the name of the Java class for an error."""
    if isinstance(error, ConfigError):
        return "org.apache.kafka.common.config.ConfigException"
    if isinstance(error, SslAuthenticationError):
        return f"{PACKAGE}.SslAuthenticationException"
    return class_name(getattr(error, "code", ErrorCode.UNKNOWN_SERVER_ERROR))


def class_name(code: ErrorCode) -> str:
    """Return the name of the Java class for an error code."""
    words = "".join(word.capitalize() for word in code.name.split("_"))
    name = _IRREGULAR.get(code.name, f"{words}Exception")
    return name if "." in name else f"{PACKAGE}.{name}"


def failure_text(error: Exception) -> str:
    """Return an error as Kafka's tools print it, then the next step in the same line."""
    return with_next_step(java_text(error), error)


def group_failure_text(error: Exception) -> str:
    """Return an error as Kafka's tools of groups print it: that of a setting without its class."""
    return str(error) if isinstance(error, ConfigError) else failure_text(error)


def with_next_step(text: str, error: Exception) -> str:
    """Add the next step to a text of an error that has only the text of its code."""
    if not isinstance(error, KafkaError) or error.message != error.code.text:
        return text
    advice = advice_on(error.code)
    return text if advice is None else f"{text} {advice.next_step}"


class ToolError(Exception):
    """An error that ends a tool; its text is printed as one line."""


@contextmanager
def failures_reported() -> Iterator[None]:
    """Report errors of brokers and arguments in one line and exit with status 1."""
    try:
        yield
    except ToolError as error:
        fail(str(error))
    except ConfigError as error:
        fail(str(error))  # Kafka's tools print it without the class name
    except KafkaError as error:
        fail(failure_text(error))


def fail(*lines: str) -> NoReturn:
    """Print lines on standard error and exit with status 1."""
    for line in lines:
        click.echo(line, err=True)
    sys.exit(1)
