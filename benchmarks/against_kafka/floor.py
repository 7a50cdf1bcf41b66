"""The minimal cost of a broker in Python on this machine, as a reference for the budgets.

    python benchmarks/against_kafka/run.py --libs KAFKA_LIBS --floor

A node whose Produce is reduced to the necessary steps: receive, verify the checksum, scan the
records, write, respond. It keeps no index, metadata or producer state, and serves only the load
generator's requests (version 13, one topic, one partition). All other parts are those of the node.
The difference to Ottla's figures is the cost of Kafka's semantics; the remaining cost is that of
system calls, the interpreter and the machine.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import uvloop

from ottla.config.broker import parse_broker_config
from ottla.protocol.primitives import decode_uvarint
from ottla.records.crc32c import crc32c
from ottla.records.scan import scan_records
from ottla.server.node.node import Node
from ottla.server.requests.dispatch import Dispatcher
from ottla.server.system.real import RealEnvironment

if TYPE_CHECKING:
    from ottla.network.connection import Connection

_HEADER = struct.Struct(">hhih")
_BATCH = struct.Struct(">qiibIhiqqqhii")
_ANSWER = struct.Struct(">iibb16sbihqqqbbbbib")
_PLACE = struct.Struct(">qii")
_PRODUCE, _VERSION = 0, 13
_BEFORE_TOPIC = 9
"""Header without tags, no transaction, acks, timeout, one topic."""
_LARGEST = 2**62


class Floor:
    """Serves Produce with the minimal work."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)
        self._end = 0
        self._next_offset = 0
        self._whole = Dispatcher.handle_frame

    def handle(self, dispatcher: Dispatcher, connection: Connection, frame: memoryview) -> None:
        """Handle a frame like `Dispatcher.handle_frame`."""
        key, version, correlation_id, length = _HEADER.unpack_from(frame)
        if key != _PRODUCE or version != _VERSION:
            self._whole(dispatcher, connection, frame)
            return
        topic = 10 + length + _BEFORE_TOPIC
        size, start = decode_uvarint(frame, topic + 21)
        records = frame[start : start + size - 1]
        answer = _ANSWER.pack(
            *(_ANSWER.size - 4, correlation_id, 0, 2, frame[topic : topic + 16].tobytes(), 2),
            *(0, 0, self._append(records), -1, 0, 1, 0, 0, 0, 0, 0),
        )
        connection.respond([answer])

    def _append(self, records: memoryview) -> int:
        header = _BATCH.unpack_from(records)
        if crc32c(records[21:]) != header[4]:
            raise ValueError("wrong checksum")
        count = header[12]
        scan_records(records, 61, len(records), count, header[7], -_LARGEST, _LARGEST, False)
        first = self._next_offset
        _PLACE.pack_into(records, 0, first, header[1], 0)
        self._end += os.pwrite(self._file, records, self._end)
        self._next_offset = first + count
        return first


async def main(port: int) -> None:
    """Serve until the process is stopped."""
    with tempfile.TemporaryDirectory() as directory:
        floor = Floor(f"{directory}/floor")

        def handle_frame(self: Dispatcher, connection: Connection, frame: memoryview) -> None:
            floor.handle(self, connection, frame)

        cut: Any = Dispatcher
        cut.handle_frame = handle_frame
        properties = {
            "node.id": "1",
            "process.roles": "broker,controller",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
            "log.dirs": f"{directory}/data",
            "offsets.topic.replication.factor": "1",
        }
        node = Node(parse_broker_config(properties), RealEnvironment(), may_format=True)
        await node.start()
        try:
            await asyncio.Event().wait()
        finally:
            await node.stop()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
