"""Real Kafka and Ottla side by side: the same requests to both, and how the answers compare.

Kafka: none.
"""

from __future__ import annotations

import re
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey, response_class, response_header_version
from ottla.protocol.frames import ResponseHeader, encode_request
from ottla.testing.cluster import Cluster
from tests.conformance.applied import CHANGES, wait_until_applied
from tests.conformance.kafka import join, running_kafka

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ottla.protocol.schema import Request, Response
    from tests.conformance.kafka import Kafka, RealKafka

SHARED = {
    "log.initial.task.delay.ms": "600000",  # producers of 1970 are not expired during the test
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "5",
    "transaction.two.phase.commit.enable": "false",  # Kafka's defaults, not those of development
    "unstable.api.versions.enable": "false",
}
HUNG_UP = "(hung up)"
_SHOWN = 400
"""Letters of a request and of each answer, from where they differ, that a failure shows."""


class Conversation:
    """Questions in any version over one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def ask(self, request: Request, version: int | None = None) -> Response | None:
        """Return the answer; None when the broker closed the connection instead."""
        key = ApiKey(request.message_key)
        spoken = type(request).versions.highest if version is None else version
        self._connection.sendall(join(encode_request(request, spoken, 7, "pair")))
        with self._connection.makefile("rb") as stream:
            size = stream.read(4)
            if not size:
                return None
            body = memoryview(stream.read(int.from_bytes(size, "big")))
        header = response_header_version(key, spoken)
        position = codec.decode_at(ResponseHeader, header, body, 0)[1]
        answer: type[Response] = response_class(key)
        decoded, end = codec.decode_at(answer, spoken, body, position)
        assert end == len(body)
        return decoded


class Speaker:
    """Asks one broker, each question on a connection of its own unless one is kept."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.address = (host, int(port))

    @contextmanager
    def connected(self) -> Iterator[Conversation]:
        """Keep one connection for as long as the block lasts."""
        with socket.create_connection(self.address, timeout=60) as connection:
            yield Conversation(connection)

    def ask(self, request: Request, version: int | None = None) -> Response | None:
        """Return the answer; None when the broker closed the connection instead."""
        with self.connected() as conversation:
            return conversation.ask(request, version)


def wait_until_all_applied(bootstrap: str) -> None:
    """Wait until each of these brokers has applied every change so far."""
    for one in bootstrap.split(","):
        wait_until_applied(Speaker(one).ask)


class Pair:
    """Both brokers, in the same state as long as they are only asked together."""

    def __init__(self, real: RealKafka, cluster: Cluster) -> None:
        self.real = real
        self.cluster = cluster
        self.theirs: Speaker | Conversation = Speaker(real.bootstrap)
        self.ours: Speaker | Conversation = Speaker(cluster.bootstrap)
        self._is_changed = False

    @contextmanager
    def connected(self) -> Iterator[Pair]:
        """Ask both over one connection each for as long as the block lasts."""
        kept = Pair(self.real, self.cluster)
        theirs, ours = Speaker(self.real.bootstrap), Speaker(self.cluster.bootstrap)
        with theirs.connected() as kept.theirs, ours.connected() as kept.ours:
            yield kept

    def ask(self, request: Request, version: int | None = None) -> tuple[Any, Any]:
        """Return Kafka's answer and ours.

        What was changed by earlier requests is applied before the first one that changes nothing.
        """
        changes = ApiKey(request.message_key) in CHANGES
        if self._is_changed and not changes:
            wait_until_applied(Speaker(self.real.bootstrap).ask)
        self._is_changed = changes
        return self.theirs.ask(request, version), self.ours.ask(request, version)

    def difference(self, request: Request, version: int | None = None) -> str | None:
        """Ask both; return what differs, ids that are drawn at random aside."""
        theirs, ours = (shown(answer) for answer in self.ask(request, version))
        if theirs == ours:
            return None
        differing = (
            at for at, (one, two) in enumerate(zip(theirs, ours, strict=False)) if one != two
        )
        at = max(next(differing, 0) - 60, 0)
        kafka, ottla = theirs[at : at + _SHOWN], ours[at : at + _SHOWN]
        return f"v{version} {repr(request)[:_SHOWN]}\n  Kafka …{kafka}\n  Ottla …{ottla}"

    def compare(self, *requests: Request, versions: range | None = None) -> None:
        """Ask both each request in turn, in every version or in the newest; all must agree."""
        found = [
            self.difference(request, version)
            for request in requests
            for version in (versions or [None])
        ]
        different = [one for one in found if one is not None]
        assert not different, "\n".join(different)


def shown(answer: Response | None) -> str:
    """Return an answer as text, without ids drawn at random and without throttle times."""
    if answer is None:
        return HUNG_UP
    return re.sub(r"(topic_id|client_instance_id)=Uuid\('[^']*'\)", r"\1", repr(answer))


@contextmanager
def running_pair(
    kafka: Kafka,
    directory: Path,
    *,
    properties: Mapping[str, str] | None = None,
    theirs: Mapping[str, str] | None = None,
    ours: Mapping[str, str] | None = None,
    classes: Path | None = None,
) -> Iterator[Pair]:
    """Run both for as long as the block lasts, with the same properties and some of each one's.

    `classes` is a directory of Java classes for Kafka's plug-ins.
    """
    common = {**SHARED, **(properties or {})}
    with (
        running_kafka(kafka, directory, {**common, **(theirs or {})}, classes) as real,
        Cluster(config={**common, **(ours or {})}) as cluster,
    ):
        yield Pair(real, cluster)
