"""A real controller and ours side by side: the same requests, compared by answer and by records."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.errors import KafkaError
from ottla.metadata.framing import NO_OP_VALUE, decode_record
from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey, response_class
from ottla.protocol.apis.alter_partition import AlterPartitionRequest
from ottla.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.frames import encode_request
from ottla.protocol.records.metadata import NoOpRecord
from ottla.records.batches import iterate_batches
from tests.conformance.kafka import exchange, join
from tests.controller.brokers import registration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.protocol.apis.create_topics import CreateTopicsRequest
    from ottla.protocol.schema import Request
    from ottla.records.batch import RecordBatch
    from ottla.types import Uuid
    from tests.conformance.kafka import RealKafka
    from tests.controller.harness import Harness

_Answer = TypeVar("_Answer")
CAUGHT_UP = 1 << 40
"""A metadata offset that every broker of a test claims to have replayed."""


class Controller:
    """One side: what its brokers' epochs and its topics' ids are, and the records it wrote."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.epochs: dict[int, int] = {}
        self.topic_ids: dict[str, Uuid] = {}

    def ask(self, request: Request) -> Any:
        """Return the response in the highest version of the request."""
        raise NotImplementedError

    def new_records(self) -> list[str]:
        """Return the records since the last call, in an order that does not depend on hashes."""
        raise NotImplementedError

    def register(self, broker_id: int, incarnation: int, **fields: Any) -> Any:
        """Register a broker; note its epoch."""
        answer = self.ask(
            registration(broker_id, incarnation, cluster_id=self.cluster_id, **fields)
        )
        if not answer.error_code:
            self.epochs[broker_id] = answer.broker_epoch
        return answer

    def beat(self, broker_id: int, **fields: Any) -> Any:
        """Send a heartbeat."""
        values = {"want_fence": False, "want_shut_down": False, **fields}
        return self.ask(
            BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=self.epochs[broker_id],
                current_metadata_offset=CAUGHT_UP,
                **values,
            )
        )

    def create(self, request: CreateTopicsRequest) -> Any:
        """Create topics; note their ids."""
        answer = self.ask(request)
        self.topic_ids |= {one.name: one.topic_id for one in answer.topics if not one.error_code}
        return answer

    def alter(
        self, leader: int, topic: str, members: Iterable[tuple[int, int]], **fields: int
    ) -> Any:
        """Send AlterPartition; a member is a broker and what is added to its epoch."""
        data = AlterPartitionRequest.TopicData
        struct = data.PartitionData
        partition = struct(
            new_isr_with_epochs=[
                struct.BrokerState(broker_id=one, broker_epoch=self.epochs.get(one, 0) + more)
                for one, more in members
            ],
            **{"partition_index": 0, "leader_recovery_state": 0, **fields},  # type: ignore[arg-type]  # all of them are int
        )
        return self.ask(
            AlterPartitionRequest(
                broker_id=leader,
                broker_epoch=self.epochs[leader],
                topics=[data(topic_id=self.topic_ids[topic], partitions=[partition])],
            )
        )

    def show(self, message: Any) -> str:
        """Return a message without what differs between any two clusters."""
        shown = repr(message)
        for name, topic_id in self.topic_ids.items():
            shown = shown.replace(str(topic_id), f"id of {name}")
        return re.sub(r"broker_epoch=\d+", "broker_epoch=N", shown)

    def _shown(self, batches: Iterable[RecordBatch]) -> list[str]:
        records: list[str] = []
        for batch in batches:
            if batch.is_control:
                continue
            for record in batch.records():
                if record.value == NO_OP_VALUE:
                    continue
                decoded = decode_record(record.value)
                if not isinstance(decoded.message, NoOpRecord):
                    records.append(f"v{decoded.version} {self.show(decoded.message)}")
        return sorted(records)


class RealController(Controller):
    """A node of Kafka 4.3.0, with its metadata log's file."""

    def __init__(self, node: RealKafka) -> None:
        meta = (node.log_dir / "meta.properties").read_text()
        found = re.search(r"^cluster\.id=(.*)$", meta, re.MULTILINE)
        assert found is not None
        super().__init__(found[1])
        self._node = node
        self._log = node.log_dir / "__cluster_metadata-0" / "00000000000000000000.log"
        self._read_bytes = self._log.stat().st_size

    def ask(self, request: Request) -> Any:
        version = type(request).versions.highest
        frame = exchange(
            self._node.controller_port, join(encode_request(request, version, 1, "test"))
        )
        answer = response_class(ApiKey(request.message_key))
        header = 4 if request.message_key == ApiKey.API_VERSIONS else 5
        return codec.decode(answer, version, memoryview(frame)[header:])

    def new_records(self) -> list[str]:
        content = memoryview(self._log.read_bytes())[self._read_bytes :]
        batches = list(iterate_batches(content, partial_tail=True))
        self._read_bytes += sum(batch.size for batch in batches)
        return self._shown(batches)


class OurController(Controller):
    """Our controller on a simulated disk."""

    def __init__(self, harness: Harness) -> None:
        super().__init__(harness.cluster_id)
        self.harness = harness
        self._offset = harness.node.quorum.log_end_offset

    def ask(self, request: Request) -> Any:
        version = type(request).versions.highest
        kind = response_class(ApiKey(request.message_key))
        try:
            response = self.harness.ask(request)
        except KafkaError as error:
            response = kind()
            response.error_code = int(error.code)  # type: ignore[attr-defined]  # all of these have one
        return codec.decode(kind, version, codec.to_bytes(response, version))

    def new_records(self) -> list[str]:
        start, self._offset = self._offset, self.harness.node.quorum.log_end_offset
        if start == self._offset:
            return []
        return self._shown(self.harness.node.driver.log.read(start))


class Pair:
    """Both sides; differences are collected."""

    def __init__(self, real: Controller, ours: OurController) -> None:
        self.real = real
        self.ours = ours
        self.differences: list[str] = []
        self._shown: tuple[str, ...] = ()
        self.steps = 0

    def step(
        self, label: str, ask: Callable[[Controller], _Answer], *, shows: bool = True
    ) -> _Answer:
        """Do the same on both sides; return our answer. `shows` False: nothing is compared."""
        self.steps += 1
        theirs, ours = ask(self.real), ask(self.ours)
        self._shown = tuple(
            "\n".join(["", side.show(answer), *side.new_records()])
            for side, answer in ((self.real, theirs), (self.ours, ours))
        )
        if shows and self._shown[0] != self._shown[1]:
            self.differences.append(
                f"{self.steps} {label}\n  Kafka {self._shown[0]}\n  Ottla {self._shown[1]}"
            )
        return ours

    def differ_in_field(self, name: str) -> bool:
        """Whether the last step differs, and in nothing but a field of a record."""
        texts = {re.sub(rf"{name}=(None|\[[\d, ]*\])", "", shown) for shown in self._shown}
        return len(set(self._shown)) > 1 and len(texts) == 1
