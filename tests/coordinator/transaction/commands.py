"""The commands of transaction transcripts: requests of any version to a live node.

Answers are returned as lines.
The same transcripts run on a node of Ottla and, in tests/conformance, on Kafka. Producer ids are
named P1, P2, ... in the order in which the node gives them out.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode
from ottla.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.protocol.apis.describe_producers import DescribeProducersRequest
from ottla.protocol.apis.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.apis.end_txn import EndTxnRequest
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest
from ottla.protocol.apis.init_producer_id import InitProducerIdRequest
from ottla.protocol.apis.list_offsets import ListOffsetsRequest
from ottla.protocol.apis.list_transactions import ListTransactionsRequest
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.protocol.apis.txn_offset_commit import TxnOffsetCommitRequest
from ottla.protocol.apis.write_txn_markers import WriteTxnMarkersRequest
from ottla.records.batches import iterate_batches
from ottla.records.builder import encode_batch
from ottla.types import ZERO_UUID
from tests.server.requests.untrusted_clients import Peer
from tests.waits import WAIT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.protocol.schema import Request

GROUP, TRANSACTION = 0, 1
_PAUSE_S: Final = 0.02
_RETRIED: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)

_Topic = AddPartitionsToTxnTopic
_Offsets = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic


class Session:
    """One client of a node; what it says in a transcript's words."""

    def __init__(self, bootstrap: str) -> None:
        self._peer = Peer(bootstrap)
        self._ids: dict[int, str] = {}
        self._commands: dict[str, Callable[..., list[str]]] = {
            name.removeprefix("do_"): getattr(self, name)
            for name in dir(type(self))
            if name.startswith("do_")
        }

    def run(self, command: str) -> list[str]:
        """Carry out one line: a command, its values, options as name=value."""
        name, *words = command.split()
        values = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        return self._commands[name](*values, **options)

    def close(self) -> None:
        """Close the connection."""
        self._peer.close()

    # ---------------------------------------------------------------- topics and coordinators

    def do_topic(self, name: str, partitions: str = "1") -> list[str]:
        """Create a topic, and wait until its partitions have leaders."""
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=int(partitions),
            replication_factor=1,
            assignments=[],
            configs=[],
        )
        answer = self._peer.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        for index in range(int(partitions)):
            wait_for(lambda index=index: self.do_latest(f"{name}-{index}") == ["0"])  # type: ignore[misc] # a lambda's default binds the loop's value
        return [_code(answer.topics[0].error_code)]

    def do_delete(self, name: str) -> list[str]:
        """Delete a topic."""
        topic = DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=ZERO_UUID)
        answer = self._peer.ask(DeleteTopicsRequest(topics=[topic], timeout_ms=10_000), 6)
        return [_code(answer.responses[0].error_code)]

    def do_find(self, key: str, kind: str = "transaction") -> list[str]:
        """Find a coordinator, until there is one."""
        request = FindCoordinatorRequest(
            key=key, key_type=TRANSACTION if kind == "transaction" else GROUP
        )
        return [_code(self._ask_again(request, 3).error_code)]

    # ---------------------------------------------------------------- the producer's requests

    def do_init(
        self,
        transactional_id: str,
        producer: str = "-1",
        epoch: str = "-1",
        *,
        timeout: str = "60000",
        version: str = "5",
        two_phase: str = "no",
        keep: str = "no",
    ) -> list[str]:
        """Ask for a producer id: InitProducerId; from version 6 on also for two phases."""
        request = InitProducerIdRequest(
            transactional_id="" if transactional_id == "''" else transactional_id,
            transaction_timeout_ms=int(timeout),
            producer_id=self._id(producer),
            producer_epoch=int(epoch),
            enable2_pc=two_phase == "yes",
            keep_prepared_txn=keep == "yes",
        )
        answer = self._ask_again(request, int(version))
        named = f"{self._name(answer.producer_id)} epoch {answer.producer_epoch}"
        if answer.ongoing_txn_producer_id >= 0:
            ongoing = self._name(answer.ongoing_txn_producer_id)
            named += f", open {ongoing} epoch {answer.ongoing_txn_producer_epoch}"
        return [_code(answer.error_code) if answer.error_code else named]

    def do_add(
        self,
        transactional_id: str,
        producer: str,
        epoch: str,
        *partitions: str,
        version: str = "3",
        verify: str = "no",
    ) -> list[str]:
        """AddPartitionsToTxn, as a client (versions below 4) or as a broker."""
        topics = [_Topic(name=name, partitions=found) for name, found in _grouped(partitions)]
        if int(version) < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=self._id(producer),
                v3_and_below_producer_epoch=int(epoch),
                v3_and_below_topics=topics,
            )
            answer = self._ask_again(request, int(version))
            return _partition_codes(answer.results_by_topic_v3_and_below)
        transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=self._id(producer),
            producer_epoch=int(epoch),
            verify_only=verify == "yes",
            topics=topics,
        )
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        answer = self._ask_again(request, int(version))
        if answer.error_code:
            return [_code(answer.error_code)]
        return _partition_codes(answer.results_by_transaction[0].topic_results)

    def do_produce(
        self,
        transactional_id: str,
        producer: str,
        epoch: str,
        sequence: str,
        partition: str,
        *values: str,
        version: str = "12",
        transactional: str = "yes",
    ) -> list[str]:
        """Produce one batch; versions from 12 on add the partition to the transaction."""
        topic, index = _partition(partition)
        now_ms = time.time_ns() // 1_000_000  # an old timestamp would make the log roll
        records = encode_batch(
            [(now_ms, None, value.encode(), ()) for value in values],
            producer_id=self._id(producer),
            producer_epoch=int(epoch),
            base_sequence=int(sequence),
            transactional=transactional == "yes",
        )
        data = ProduceRequest.TopicProduceData(
            name=topic,
            partition_data=[
                ProduceRequest.TopicProduceData.PartitionProduceData(index=index, records=records)
            ],
        )
        request = ProduceRequest(
            transactional_id=None if transactional_id == "none" else transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[data],
        )
        answer = self._ask_again(request, int(version))
        result = answer.responses[0].partition_responses[0]
        if result.error_code:
            return [_code(result.error_code)]
        return [f"offset {result.base_offset}"]

    def do_offsets(
        self, transactional_id: str, producer: str, epoch: str, group: str, *, version: str = "4"
    ) -> list[str]:
        """AddOffsetsToTxn."""
        request = AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=self._id(producer),
            producer_epoch=int(epoch),
            group_id=group,
        )
        return [_code(self._ask_again(request, int(version)).error_code)]

    def do_commit_offset(
        self,
        transactional_id: str,
        producer: str,
        epoch: str,
        group: str,
        partition: str,
        offset: str,
        *,
        version: str = "5",
        generation: str = "-1",
        member: str = "",
    ) -> list[str]:
        """TxnOffsetCommit of one partition."""
        topic, index = _partition(partition)
        one = _Offsets.TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=int(offset), committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=group,
            producer_id=self._id(producer),
            producer_epoch=int(epoch),
            generation_id=int(generation),
            member_id=member,
            topics=[_Offsets(name=topic, partitions=[one])],
        )
        answer = self._ask_again(request, int(version))
        return [_code(answer.topics[0].partitions[0].error_code)]

    def do_end(
        self, transactional_id: str, producer: str, epoch: str, how: str, *, version: str = "5"
    ) -> list[str]:
        """EndTxn; waits for the markers, so that what follows sees the end."""
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=self._id(producer),
            producer_epoch=int(epoch),
            committed=how == "commit",
        )
        answer = self._ask_again(request, int(version))
        if answer.error_code:
            return [_code(answer.error_code)]
        self._wait_until_complete(transactional_id)
        if answer.producer_id < 0:
            return ["NONE"]
        return [f"{self._name(answer.producer_id)} epoch {answer.producer_epoch}"]

    def do_markers(
        self,
        producer: str,
        epoch: str,
        how: str,
        *partitions: str,
        coordinator: str = "0",
        version: str = "1",
        transaction: str = "0",
    ) -> list[str]:
        """WriteTxnMarkers."""
        topics = WriteTxnMarkersRequest.WritableTxnMarker.WritableTxnMarkerTopic
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=self._id(producer),
            producer_epoch=int(epoch),
            transaction_result=how == "commit",
            topics=[topics(name=name, partition_indexes=is_) for name, is_ in _grouped(partitions)],
            coordinator_epoch=int(coordinator),
            transaction_version=int(transaction),
        )
        answer = self._peer.ask(WriteTxnMarkersRequest(markers=[marker]), int(version))
        return sorted(
            f"{topic.name}-{one.partition_index} {_code(one.error_code)}"
            for topic in answer.markers[0].topics
            for one in topic.partitions
        )

    # ---------------------------------------------------------------- what readers see

    def do_read(self, partition: str, isolation: str = "committed") -> list[str]:
        """Fetch a partition from offset 0 and list its batches, bounds and aborted producers."""
        topic, index = _partition(partition)
        asked = FetchRequest.FetchTopic(
            topic=topic,
            partitions=[
                FetchRequest.FetchTopic.FetchPartition(
                    partition=index, fetch_offset=0, partition_max_bytes=1 << 20
                )
            ],
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=int(isolation == "committed"),
            topics=[asked],
        )
        answer = self._peer.ask(request, 12).responses[0].partitions[0]
        if answer.error_code:
            return [_code(answer.error_code)]
        bounds = f"high watermark {answer.high_watermark}, stable {answer.last_stable_offset}"
        aborted = [
            f"aborted {self._name(one.producer_id)} from {one.first_offset}"
            for one in answer.aborted_transactions or ()
        ]
        batches = iterate_batches(memoryview(bytes(answer.records or b"")))
        return [bounds, *aborted, *(self._batch(batch) for batch in batches)]

    def do_latest(self, partition: str, isolation: str = "committed") -> list[str]:
        """ListOffsets of the end."""
        topic, index = _partition(partition)
        asked = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
            partition_index=index, timestamp=-1
        )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(isolation == "committed"),
            topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])],
        )
        return [f"{self._peer.ask(request, 7).topics[0].partitions[0].offset}"]

    def do_committed(self, group: str, partition: str, stable: str = "no") -> list[str]:
        """OffsetFetch of one partition."""
        topic, index = _partition(partition)
        topics = OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[index])
        request = OffsetFetchRequest(
            group_id=group, topics=[topics], require_stable=stable == "stable"
        )
        answer = self._peer.ask(request, 7)
        if answer.error_code:
            return [_code(answer.error_code)]
        one = answer.topics[0].partitions[0]
        return [_code(one.error_code) if one.error_code else f"offset {one.committed_offset}"]

    # ---------------------------------------------------------------- descriptions

    def do_describe(self, *transactional_ids: str) -> list[str]:
        """DescribeTransactions."""
        request = DescribeTransactionsRequest(transactional_ids=list(transactional_ids))
        answer = self._peer.ask(request, 0)
        return [line for one in answer.transaction_states for line in self._described(one)]

    def _described(self, one: Any) -> list[str]:
        if one.error_code:
            return [_code(one.error_code)]
        started = "started" if one.transaction_start_time_ms >= 0 else "not started"
        topics = sorted(f"{topic.topic}-{n}" for topic in one.topics for n in topic.partitions)
        producer = f"{self._name(one.producer_id)} epoch {one.producer_epoch}"
        return [
            f"{one.transaction_state} {producer} timeout {one.transaction_timeout_ms} {started}",
            *topics,
        ]

    def do_list(
        self,
        *states: str,
        version: str = "2",
        producer: str = "",
        duration: str = "-1",
        pattern: str = "",
    ) -> list[str]:
        """ListTransactions."""
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=[self._id(producer)] if producer else [],
            duration_filter=int(duration),
            transactional_id_pattern=pattern or None,
        )
        answer = self._peer.ask(request, int(version))
        if answer.error_code:
            return [_code(answer.error_code)]
        unknown = [f"unknown state {one}" for one in answer.unknown_state_filters]
        found = [
            f"{one.transactional_id} {self._name(one.producer_id)} {one.transaction_state}"
            for one in answer.transaction_states
        ]
        return unknown + sorted(found)

    def do_producers(self, partition: str) -> list[str]:
        """DescribeProducers of one partition."""
        topic, index = _partition(partition)
        topics = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[index])
        answer = self._peer.ask(DescribeProducersRequest(topics=[topics]), 0)
        one = answer.topics[0].partitions[0]
        if one.error_code:
            return [_code(one.error_code)]
        return sorted(
            f"{self._name(state.producer_id)} epoch {state.producer_epoch} "
            f"sequence {state.last_sequence} coordinator {state.coordinator_epoch} "
            f"open from {state.current_txn_start_offset}"
            for state in one.active_producers
        )

    def do_wait(self, duration_ms: str) -> list[str]:
        """Let time pass."""
        time.sleep(int(duration_ms) / 1000)
        return []

    def do_await(self, transactional_id: str, state: str) -> list[str]:
        """Wait until a transaction is in a state."""
        wait_for(lambda: self.do_describe(transactional_id)[0].split()[0] == state)
        return [state]

    # ---------------------------------------------------------------- internals

    def _wait_until_complete(self, transactional_id: str) -> None:
        wait_for(lambda: not self.do_describe(transactional_id)[0].startswith("Prepare"))

    def _ask_again(self, request: Request, version: int) -> Any:
        """Ask until the answer has none of the codes after which clients try again."""
        end_s = time.monotonic() + WAIT_S
        while True:
            answer = self._peer.ask(request, version)
            if not set(_codes(answer)) & _RETRIED or time.monotonic() > end_s:
                return answer
            time.sleep(_PAUSE_S)

    def _id(self, name: str) -> int:
        known = {name: number for number, name in self._ids.items()}
        return known[name] if name.startswith("P") else int(name)

    def _name(self, producer_id: int) -> str:
        if producer_id < 0:
            return "no producer"
        return self._ids.setdefault(producer_id, f"P{len(self._ids) + 1}")

    def _batch(self, batch: Any) -> str:
        producer = f"{self._name(batch.producer_id)} epoch {batch.producer_epoch}"
        if batch.is_control:
            (record,) = batch.records()
            return f"{batch.base_offset}: {'commit' if record.key[3] else 'abort'} of {producer}"
        values = " ".join(record.value.decode() for record in batch.records())
        return f"{batch.base_offset}: {values} of {producer}"


def _codes(answer: Any) -> list[int]:
    """Return all error codes of an answer, at any depth."""
    found = []
    for name in itertools.chain.from_iterable(
        getattr(kind, "__slots__", ()) for kind in type(answer).__mro__
    ):
        value = getattr(answer, name, None)
        if name.endswith("error_code"):
            found.append(value)
        elif isinstance(value, list):
            found += [code for one in value for code in _codes(one)]
    return found  # type: ignore[return-value] # error codes are numbers


def _code(number: int) -> str:
    return ErrorCode(number).name


def _partition(name: str) -> tuple[str, int]:
    topic, _, index = name.rpartition("-")
    return topic, int(index)


def _grouped(partitions: tuple[str, ...]) -> list[tuple[str, list[int]]]:
    grouped: dict[str, list[int]] = {}
    for topic, index in map(_partition, partitions):
        grouped.setdefault(topic, []).append(index)
    return list(grouped.items())


def _partition_codes(topics: Any) -> list[str]:
    return sorted(
        f"{topic.name}-{one.partition_index} {_code(one.partition_error_code)}"
        for topic in topics
        for one in topic.results_by_partition
    )
