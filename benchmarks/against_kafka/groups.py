"""Groups of Kafka and of Ottla: offset commits, changes of large groups, heartbeats, share groups.

    python benchmarks/against_kafka/groups.py --libs DIR [--only commits] [--members 1000]

Alternating runs. Members are connections of one client process that speak the protocol, so that CPU
is that of the broker process. A change is over when all members that are left have one epoch, or
generation, and hold all partitions; 10 % leave at once. Members of consumer groups send a heartbeat
a second.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.against_kafka.brokers import Ottla, RealKafka

from ottla import Admin, AsyncProducer, AsyncShareConsumer
from ottla.protocol import codec, frames
from ottla.protocol.api_keys import ApiKey, response_class, response_header_version
from ottla.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest
from ottla.protocol.apis.heartbeat import HeartbeatRequest
from ottla.protocol.apis.join_group import JoinGroupRequest
from ottla.protocol.apis.leave_group import LeaveGroupRequest
from ottla.protocol.apis.offset_commit import OffsetCommitRequest
from ottla.protocol.apis.sync_group import SyncGroupRequest
from ottla.protocol.frames import ResponseHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from benchmarks.against_kafka.brokers import Broker

    from ottla.protocol.schema import Request

TOPIC, SHARED = "members", "shared"
SETTINGS = (  # no member is taken for dead while ten thousand of them join
    "group.consumer.max.session.timeout.ms=300000",
    "group.consumer.session.timeout.ms=300000",
)
_COMMITTED_PARTITIONS = 10
_RECORDS = 200_000
_ILLEGAL, _REBALANCE = 22, 27


class Peer:
    """One connection; one request at a time."""

    async def open(self, bootstrap: str) -> Peer:
        """Connect."""
        host, _, port = bootstrap.rpartition(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        return self

    async def ask(self, request: Request, version: int) -> Any:
        """Send a request and return its response."""
        parts = frames.encode_request(request, version, 5, "groups")
        self._writer.write(b"".join(bytes(part) for part in parts))  # type: ignore[arg-type] # no slices in requests
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        answer = memoryview(await self._reader.readexactly(size))
        key = ApiKey(request.message_key)
        header = response_header_version(key, version)
        position = codec.decode_at(ResponseHeader, header, answer)[1]
        return codec.decode_at(response_class(key), version, answer, position)[0]

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


async def _coordinate(bootstrap: str) -> None:
    """Wait until the topic of groups is there and led."""
    peer = await Peer().open(bootstrap)
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["any"])
    while (await peer.ask(request, 4)).coordinators[0].error_code:  # noqa: ASYNC110 - a broker's state
        await asyncio.sleep(0.1)
    peer.close()
    await asyncio.sleep(2)


# -------------------------------------------------------------------- offset commits


async def commits(bootstrap: str, options: argparse.Namespace) -> float:
    """Return how many commits of ten partitions eight connections made."""
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    part = topic.OffsetCommitRequestPartition
    until_s = time.monotonic() + options.seconds
    counts = []

    async def commit(number: int) -> None:
        peer, count = await Peer().open(bootstrap), 0
        while time.monotonic() < until_s:
            parts = [
                part(partition_index=index, committed_offset=count, committed_metadata="")
                for index in range(_COMMITTED_PARTITIONS)
            ]
            request = OffsetCommitRequest(
                group_id=f"commits-{number}",
                member_id="",
                generation_id_or_member_epoch=-1,
                topics=[topic(name=TOPIC, partitions=parts)],
            )
            answer = await peer.ask(request, 9)
            assert answer.topics[0].partitions[0].error_code == 0, answer
            count += 1
        counts.append(count)
        peer.close()

    await asyncio.gather(*(commit(number) for number in range(8)))
    return float(sum(counts))


# -------------------------------------------------------------------- consumer groups


class ConsumerMember:
    """A member of a consumer group that takes every assignment at once."""

    def __init__(self, group_id: str, number: int) -> None:
        self.group_id, self.member_id = group_id, f"m{number}"
        self.epoch, self.held = 0, 0
        self._owned: Any = None
        self.peer = Peer()

    async def beat(self) -> bool:
        """Send a heartbeat; return whether another one is due at once."""
        joins = self.epoch == 0
        answer = await self.peer.ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                member_epoch=self.epoch,
                rebalance_timeout_ms=300_000 if joins else -1,
                subscribed_topic_names=[TOPIC] if joins else None,
                topic_partitions=[] if joins else self._owned,
            ),
            1,
        )
        assert answer.error_code == 0, answer
        self._owned = None
        self.epoch = answer.member_epoch
        if answer.assignment is None:
            return False
        named = ConsumerGroupHeartbeatRequest.TopicPartitions
        found = answer.assignment.topic_partitions
        self._owned = [named(topic_id=one.topic_id, partitions=one.partitions) for one in found]
        self.held = sum(len(one.partitions) for one in found)
        return True

    async def stay(self) -> None:
        """Send heartbeats until cancelled."""
        while True:
            if not await self.beat():
                await asyncio.sleep(1)

    async def leave(self) -> None:
        """Leave the group."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=-1
        )
        await self.peer.ask(request, 1)
        self.peer.close()


def _is_stable(members: list[ConsumerMember], partitions: int) -> bool:
    epochs = {one.epoch for one in members}
    return len(epochs) == 1 and sum(one.held for one in members) == partitions


async def consumer_group(bootstrap: str, options: argparse.Namespace) -> float:
    """Return how long a tenth of a consumer group's members took to leave, until all was stable."""
    members = [ConsumerMember("consumers", number) for number in range(options.members)]
    for one in members:
        await one.peer.open(bootstrap)
    tasks = [asyncio.create_task(one.stay()) for one in members]
    await _until(lambda: _is_stable(members, options.partitions))
    options.begin()
    gone = options.members // 10
    for task in tasks[:gone]:
        task.cancel()
    begun_s = time.monotonic()
    await asyncio.gather(*(_left(one, bootstrap) for one in members[:gone]))
    await _until(lambda: _is_stable(members[gone:], options.partitions))
    took_s = time.monotonic() - begun_s
    options.end()
    for task in tasks:
        task.cancel()
    for one in members[gone:]:
        one.peer.close()
    await asyncio.gather(*(_left(one, bootstrap) for one in members[gone:]))
    return took_s


async def _left(member: ConsumerMember, bootstrap: str) -> None:
    """Leave over a connection of its own: the other one may have a request in flight."""
    member.peer.close()
    member.peer = await Peer().open(bootstrap)
    await member.leave()


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(300):
        while not condition():  # noqa: ASYNC110 - members change in tasks of their own
            await asyncio.sleep(0.01)


# -------------------------------------------------------------------- classic groups


class ClassicMember:
    """A member of a classic group; the first one assigns the partitions in turn."""

    def __init__(self, partitions: int) -> None:
        self.peer, self.member_id = Peer(), ""
        self.generation, self.held = -1, 0
        self._partitions = partitions

    async def _join(self) -> Any:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol
        while True:
            answer = await self.peer.ask(
                JoinGroupRequest(
                    group_id="classic",
                    session_timeout_ms=60_000,
                    rebalance_timeout_ms=60_000,
                    member_id=self.member_id,
                    protocol_type="consumer",
                    protocols=[protocol(name="range", metadata=b"")],
                ),
                9,
            )
            self.member_id = answer.member_id
            if answer.error_code == 0:
                return answer

    async def rebalance(self) -> None:
        """Join, and take an assignment."""
        while True:
            joined = await self._join()
            assigned = SyncGroupRequest.SyncGroupRequestAssignment
            made = [
                assigned(
                    member_id=one.member_id,
                    assignment=bytes(len(range(index, self._partitions, len(joined.members)))),
                )
                for index, one in enumerate(joined.members)
            ]
            answer = await self.peer.ask(
                SyncGroupRequest(
                    group_id="classic",
                    generation_id=joined.generation_id,
                    member_id=self.member_id,
                    protocol_type="consumer",
                    protocol_name="range",
                    assignments=made,
                ),
                5,
            )
            if answer.error_code == 0:
                self.generation, self.held = joined.generation_id, len(answer.assignment)
                return

    async def stay(self) -> None:
        """Send heartbeats until cancelled; join again when the group changes."""
        await self.rebalance()
        while True:
            await asyncio.sleep(1)
            request = HeartbeatRequest(
                group_id="classic", generation_id=self.generation, member_id=self.member_id
            )
            if (await self.peer.ask(request, 4)).error_code in (_ILLEGAL, _REBALANCE):
                await self.rebalance()


async def classic_group(bootstrap: str, options: argparse.Namespace) -> float:
    """Return how long a classic group took to be stable after a tenth of its members left."""
    members = [ClassicMember(options.partitions) for _ in range(options.members)]
    for one in members:
        await one.peer.open(bootstrap)
    tasks = [asyncio.create_task(one.stay()) for one in members]

    def is_stable(left: list[ClassicMember]) -> bool:
        generations = {one.generation for one in left}
        return len(generations) == 1 and sum(one.held for one in left) == options.partitions

    await _until(lambda: is_stable(members))
    options.begin()
    gone, begun_s = options.members // 10, time.monotonic()
    for task in tasks[:gone]:
        task.cancel()
    await _leave_classic(bootstrap, members[:gone])
    await _until(lambda: is_stable(members[gone:]))
    took_s = time.monotonic() - begun_s
    options.end()
    for task in tasks:
        task.cancel()
    await _leave_classic(bootstrap, members[gone:])
    for one in members:
        one.peer.close()
    return took_s


async def _leave_classic(bootstrap: str, members: list[ClassicMember]) -> None:
    named = LeaveGroupRequest.MemberIdentity
    peer = await Peer().open(bootstrap)
    for one in members:
        leaving = [named(member_id=one.member_id, group_instance_id=None)]
        await peer.ask(LeaveGroupRequest(group_id="classic", members=leaving), 5)
    peer.close()


# -------------------------------------------------------------------- heartbeats


async def _settle(group: list[ConsumerMember]) -> None:
    for _ in range(3):
        for one in group:
            while await one.beat():
                pass


async def _leave_all(group: list[ConsumerMember]) -> None:
    for one in group:
        request = ConsumerGroupHeartbeatRequest(
            group_id=one.group_id, member_id=one.member_id, member_epoch=-1
        )
        await one.peer.ask(request, 1)
    group[0].peer.close()


async def heartbeats(bootstrap: str, options: argparse.Namespace) -> float:
    """Return how many heartbeats idle members of 100 groups sent, one each in five seconds."""
    connections = 100
    each = 10 * options.members // connections
    groups: list[list[ConsumerMember]] = []
    for number in range(connections):
        peer = await Peer().open(bootstrap)
        group = [ConsumerMember(f"idle-{number}", one) for one in range(each)]
        for one in group:
            one.peer = peer
        groups.append(group)

    await asyncio.gather(*map(_settle, groups))
    await asyncio.sleep(1.5)
    await asyncio.gather(*map(_settle, groups))
    options.begin()
    begun_s, count = time.monotonic(), 0

    async def idle(group: list[ConsumerMember]) -> None:
        nonlocal count
        for cycle in range(max(1, int(options.seconds // 5))):
            for index, one in enumerate(group):
                due_s = begun_s + 5 * (cycle + index / each)
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                await one.beat()
                count += 1

    await asyncio.gather(*map(idle, groups))
    options.end()
    await asyncio.gather(*map(_leave_all, groups))
    return float(count)


# -------------------------------------------------------------------- share groups


def share_group(consumers: int) -> Callable[[str, argparse.Namespace], Coroutine[Any, Any, float]]:
    """Return the measurement of so many share consumers that acknowledge all that they get."""

    async def measure(bootstrap: str, options: argparse.Namespace) -> float:
        group_id = f"share-{consumers}-{time.monotonic_ns()}"
        async with AsyncProducer(bootstrap_servers=bootstrap) as producer:
            readers = [
                AsyncShareConsumer(SHARED, bootstrap_servers=bootstrap, group_id=group_id)
                for _ in range(consumers)
            ]
            for one in readers:
                await one.start()
            await asyncio.gather(*(one.poll(8) for one in readers))  # the group begins at the end
            for number in range(_RECORDS):
                await producer.send(SHARED, bytes(100), partition=number % 8)
            await producer.flush()
            options.begin()
            count, until_s = 0, time.monotonic() + options.seconds

            async def read(reader: AsyncShareConsumer) -> None:
                nonlocal count
                while time.monotonic() < until_s and count < _RECORDS:
                    count += len(await reader.poll(0.5))

            begun_s = time.monotonic()
            await asyncio.gather(*map(read, readers))
            took_s = time.monotonic() - begun_s
            options.end()
            for one in readers:
                await one.close()
        return count / took_s

    return measure


CASES: dict[str, tuple[Callable[[str, argparse.Namespace], Coroutine[Any, Any, float]], str]] = {
    "commits": (commits, "commits"),
    "consumer-group": (consumer_group, "s until stable"),
    "classic-group": (classic_group, "s until stable"),
    "heartbeats": (heartbeats, "heartbeats"),
    "share-1": (share_group(1), "records/s"),
    "share-8": (share_group(8), "records/s"),
}


class _Cpu:
    """CPU seconds of a broker between two moments of a case, of the whole case by default."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._begun_s, self.used_s = broker.cpu_seconds(), 0.0

    def begin(self) -> None:
        """Count from now."""
        self._begun_s = self._broker.cpu_seconds()

    def end(self) -> None:
        """Count until now."""
        self.used_s = self._broker.cpu_seconds() - self._begun_s


def _measure(broker: Broker, name: str, options: argparse.Namespace) -> tuple[float, float]:
    """Return the result of a case and the CPU seconds of the broker."""
    cpu = _Cpu(broker)
    given = argparse.Namespace(**{**vars(options), "begin": cpu.begin, "end": cpu.end})
    found = asyncio.run(CASES[name][0](broker.bootstrap, given))
    if not cpu.used_s:
        cpu.end()
    return found, cpu.used_s


def main() -> None:
    """Run with command line arguments; print figures and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--libs", required=True, help="the directory of Kafka's jars")
    parser.add_argument("--only", choices=sorted(CASES))
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-groups-") as made:
        brokers: list[Broker] = [
            RealKafka(options.libs, Path(made, "kafka"), *SETTINGS),
            Ottla(Path(made, "ottla"), *SETTINGS),
        ]
        try:
            for one in brokers:
                with Admin(bootstrap_servers=one.bootstrap) as admin:
                    admin.create_topic(TOPIC, options.partitions)
                    admin.create_topic(SHARED, 8)
            for name in [options.only] if options.only else CASES:
                _compare(brokers, name, options)
        finally:
            for one in brokers:
                one.stop()


def _compare(brokers: list[Broker], name: str, options: argparse.Namespace) -> None:
    for one in brokers:
        asyncio.run(_coordinate(one.bootstrap))
        _measure(one, name, options)  # warms up
    best: dict[str, tuple[float, float]] = {}
    is_time = name.endswith("group")
    for _ in range(options.runs):
        for one in brokers:
            found, cpu_s = _measure(one, name, options)
            known = best.get(one.name, (found, cpu_s))
            best[one.name] = (min if is_time else max)(found, known[0]), min(cpu_s, known[1])
    shown = ", ".join(f"{key} {found:.2f}, CPU {cpu:.2f} s" for key, (found, cpu) in best.items())
    ratio = best["ottla"][0] / best["kafka"][0]
    cpu_ratio = best["ottla"][1] / best["kafka"][1]
    if not is_time:
        cpu_ratio /= ratio  # of the same number of commits, heartbeats or records
    print(f"{name} ({CASES[name][1]}): {shown}")
    print(f"  Ottla / Kafka: {ratio:.2f}, CPU {cpu_ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
