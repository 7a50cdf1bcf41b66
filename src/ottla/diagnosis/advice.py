"""All advice in one table: symptom, cause, next step.

A symptom is an error code whose text says nothing more, the number of a disk's error, a situation
that a client recognizes, or words in an error that another program wrote. A text that already says
the step, and one that depends on settings, stands where it is made.

Kafka: none.
"""

from __future__ import annotations

import errno
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from ottla.errors import ErrorCode


class Situation(Enum):
    """Failures of a client's connection, told apart by when and how it failed."""

    NOTHING_LISTENS = auto()
    ADVERTISED_ADDRESS_FAILS = auto()
    UNKNOWN_HOST = auto()
    TLS_HANDSHAKE_FAILED = auto()
    CERTIFICATE_REFUSED = auto()
    LISTENER_SPEAKS_TLS = auto()
    CLOSED_BEFORE_FIRST_RESPONSE = auto()
    CLOSED_AFTER_FIRST_REQUEST = auto()
    PEER_SPEAKS_HTTP = auto()
    PEER_SPEAKS_SOMETHING_ELSE = auto()


class DiskError(NamedTuple):
    """An error of the system while a node writes its logs."""

    number: int


class Words(NamedTuple):
    """Words of which one is in the text of an error."""

    any_of: tuple[str, ...]


Symptom: TypeAlias = ErrorCode | Situation | DiskError | Words


class Advice(NamedTuple):
    """A row of the table; {reason} and {size} stand for what only the failure knows.

    The cause is empty where the text of the error says it.
    """

    symptom: Symptom
    cause: str
    next_step: str

    def text(self, **values: object) -> str:
        """Return cause and next step as one text."""
        return f"{self.cause} {self.next_step}".strip().format(**values)


_LOG: Final = "The broker's log has the reason."
_TOPICS: Final = "ottla topics --describe"
_NOTHING_LOST: Final = "nothing is lost or written twice"
_CHECK_PROTOCOL: Final = "check security_protocol"
OTHER_LOG: Final = (
    "CONCURRENT_STREAM_LOG_UPDATE",
    "Multiple streaming queries are concurrently using",
)
"""Spark's errors of a driver that finds the next micro-batch planned or committed by another, or
meets it as both write the same file: started again it would end the other one."""

TABLE: Final = (
    # errors of a cluster, not of a request; their texts name no place to look at
    Advice(
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        "",
        "Check that enough brokers are up to create __consumer_offsets "
        "(offsets.topic.replication.factor) and to lead its partitions: "
        f"{_TOPICS} --topic __consumer_offsets; the topic of transactions is __transaction_state.",
    ),
    Advice(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "", "Try again in some seconds."),
    Advice(ErrorCode.NOT_COORDINATOR, "", "The coordinator has moved: try again."),
    Advice(
        ErrorCode.NOT_CONTROLLER,
        "",
        "Check that the controllers are up: ottla metadata-quorum describe --status.",
    ),
    Advice(ErrorCode.BROKER_NOT_AVAILABLE, "", "Check that the broker is up."),
    Advice(
        ErrorCode.LEADER_NOT_AVAILABLE,
        "",
        f"Check that the brokers of its replicas are up: {_TOPICS} --unavailable-partitions.",
    ),
    Advice(
        ErrorCode.NOT_ENOUGH_REPLICAS,
        "",
        f"Check which brokers are down: {_TOPICS} --under-min-isr-partitions.",
    ),
    Advice(
        ErrorCode.REQUEST_TIMED_OUT, "", "Check that the brokers are up, and how busy they are."
    ),
    Advice(ErrorCode.KAFKA_STORAGE_ERROR, "", _LOG),
    Advice(ErrorCode.UNKNOWN_SERVER_ERROR, "", _LOG),
    # connections of clients
    Advice(
        Situation.NOTHING_LISTENS,
        "is a broker running there?",
        "Start one with `ottla server-start`, or correct bootstrap_servers",
    ),
    Advice(
        Situation.ADVERTISED_ADDRESS_FAILS,
        "the broker advertises this address",
        "(advertised.listeners)",
    ),
    Advice(Situation.UNKNOWN_HOST, "{reason}:", "check the host name"),
    Advice(
        Situation.TLS_HANDSHAKE_FAILED,
        "the TLS handshake failed ({reason}): the listener may be a PLAINTEXT one,",
        _CHECK_PROTOCOL,
    ),
    Advice(
        Situation.CERTIFICATE_REFUSED,
        "the broker's certificate was not accepted ({reason}):",
        "check ssl.truststore.location and the host name",
    ),
    Advice(
        Situation.LISTENER_SPEAKS_TLS,
        "the listener speaks TLS, this client does not:",
        "set security_protocol to SSL or SASL_SSL",
    ),
    Advice(
        Situation.CLOSED_BEFORE_FIRST_RESPONSE,
        "the connection was closed before the first response: the listener may require TLS,",
        _CHECK_PROTOCOL,
    ),
    Advice(
        Situation.CLOSED_AFTER_FIRST_REQUEST,
        "the connection was closed after the first request: the listener may require a SASL login,",
        _CHECK_PROTOCOL,
    ),
    Advice(
        Situation.PEER_SPEAKS_HTTP, "the peer speaks HTTP, not Kafka's protocol:", "check the port"
    ),
    Advice(
        Situation.PEER_SPEAKS_SOMETHING_ELSE,
        "the peer announced a frame of {size} bytes:",
        "is it a broker's port?",
    ),
    # disks of a node
    Advice(
        DiskError(errno.ENOSPC),
        "",
        "free some space or move the directory to a larger disk",
    ),
    Advice(DiskError(errno.EDQUOT), "", "raise the quota or free some space"),
    Advice(DiskError(errno.EFBIG), "", "raise the limit on file sizes"),
    Advice(DiskError(errno.EROFS), "", "mount it writable"),
    Advice(DiskError(errno.EACCES), "", "make it writable for this user"),
    # queries of Spark
    Advice(
        Words(("No space left on device", "Disk quota exceeded")),
        "the disk of the checkpoint, or of Spark's files, is full;",
        f"free space on it and start again: {_NOTHING_LOST}",
    ),
    Advice(
        Words(OTHER_LOG),
        "another driver runs this query on the same checkpoint:",
        "it goes on, this one ends",
    ),
    Advice(
        Words(("File too large",)),
        "a file of the checkpoint, or of Spark, has reached the limit of this process (ulimit -f);",
        f"raise it and start again: {_NOTHING_LOST}",
    ),
    Advice(
        Words(("CANNOT_READ_STREAMING_STATE_FILE",)),
        "a file of the checkpoint's state is missing:",
        "a query of an application that runs is to be repeated, another one needs a copy of the "
        "checkpoint that has the file",
    ),
    Advice(
        Words(("failed to connect back", "CANNOT_OPEN_SOCKET")),
        "a Python process did not start within Spark's ten seconds;",
        "give the machine less to do, or start its queries one after the other",
    ),
)

_BY_SYMPTOM: Final = {advice.symptom: advice for advice in TABLE}


def advice_on(symptom: ErrorCode | Situation | DiskError) -> Advice | None:
    """Return the advice on a symptom, None where there is none."""
    return _BY_SYMPTOM.get(symptom)


def situation_text(situation: Situation, **values: object) -> str:
    """Return cause and next step of a situation."""
    return _BY_SYMPTOM[situation].text(**values)


def advice_in(text: str) -> tuple[str, str]:
    """Return the words of the table that are in a text, and the advice; "" for others."""
    for advice in TABLE:
        for word in advice.symptom.any_of if isinstance(advice.symptom, Words) else ():
            if word in text:
                return word, advice.text()
    return "", ""
