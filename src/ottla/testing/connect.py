"""Run connectors without a broker: `ottla.connect.Source`, `Sink`, or a full connector.

>>> from ottla.connect.file.source import FileStreamSourceConnector
>>> collect(FileStreamSourceConnector, {"file": "/no/such/file", "topic": "lines"})
[]
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.connect.errors import RetriableException
from ottla.connect.records import SinkRecord, SourceRecord
from ottla.connect.simple import connector_class
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

_RETRIES = 10
"""Refusals of a batch in a row, after which a sink is taken to refuse it for ever."""


class _SourceContext:
    transaction = None

    def __init__(
        self, config: Mapping[str, str], offsets: Mapping[str, Mapping[str, Any] | None]
    ) -> None:
        """Take stored offsets by partition, as JSON."""
        self.config, self._offsets = config, offsets

    def offset(self, partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return a stored offset."""
        return self._offsets.get(_key(partition))

    def offsets(self, partitions: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any] | None]:
        """Return stored offsets."""
        return [self.offset(it) for it in partitions]

    def request_task_reconfiguration(self) -> None:
        """Do nothing: the run is short."""

    def raise_error(self, error: Exception) -> None:
        """Fail the test."""
        raise error


def collect(
    connector: type[Any],
    config: Mapping[str, str],
    after: Sequence[SourceRecord] = (),
    limit: int = 1000,
) -> list[SourceRecord]:
    """Return what a source gives after some records, until it has nothing or gave `limit`.

    Offsets pass through JSON, as in a worker. ConfigErrors for settings that are not valid.
    """
    made = connector_class(connector)
    made.definitions.parse(config)
    offsets = {_key(it.source_partition): _plain(it.source_offset) for it in after}
    source = made()
    source.context = _SourceContext(config, offsets)
    source.start(config)
    records: list[SourceRecord] = []
    try:
        for settings in source.task_configs(1):
            task = made.task_class()
            task.context = _SourceContext(settings, offsets)
            task.start(settings)
            try:
                while len(records) < limit and (batch := task.poll()):
                    records += batch
            finally:
                task.stop()
    finally:
        source.stop()
    return records[:limit]


def check_restarts(
    connector: type[Any], config: Mapping[str, str], limit: int = 1000
) -> list[SourceRecord]:
    """Restart a source after each of its records; AssertionError if one is lost or doubled.

    What is read must not change meanwhile. Returns the records of the first run.
    """
    whole = collect(connector, config, limit=limit)
    assert whole, "the source gave no records"
    for count in range(1, len(whole) + 1):
        expected = _by_partition(whole[count:])
        got = _by_partition(collect(connector, config, whole[:count], limit))
        for key in expected | got:
            pair = expected.get(key, []), got.get(key, [])
            if len(whole) == limit:  # neither run came to the end
                shorter = min(map(len, pair))
                pair = pair[0][:shorter], pair[1][:shorter]
            assert pair[0] == pair[1], _difference(key, count, *pair)
    return whole


class SinkRun:
    """Feeds a sink as a worker does: retries, commits, and restarts from what was committed."""

    def __init__(self, connector: type[Any], config: Mapping[str, str]) -> None:
        """Start the only task. ConfigErrors for settings that are not valid."""
        self._class, self.config = connector_class(connector), config
        self._class.definitions.parse(config)
        self._given: dict[TopicPartition, list[SinkRecord]] = defaultdict(list)
        self.committed: dict[TopicPartition, int] = {}
        """The offset of the next record, by partition, at the last commit."""
        self._start()

    def write(self, values: Iterable[Any], topic: str = "test", partition: int = 0) -> None:
        """Give the values as the next records of a partition; a refused batch is given again."""
        part = TopicPartition(topic, partition)
        if part not in self._given:
            self._given[part] = []
            self._open([part])
        records = self._given[part]
        first = len(records)
        records += [
            SinkRecord(topic, partition, value=it, offset=first + i, original=part)
            for i, it in enumerate(values)
        ]
        self._put(records[self._position(part, first) :])

    def commit(self) -> None:
        """Have the task flush, and store the offsets that it returns."""
        ends = {part: len(records) for part, records in self._given.items()}
        self.committed.update(self._task.pre_commit(ends))

    def restart(self) -> None:
        """Kill the task and start another one, which gets again all that was not committed."""
        self._task.stop()
        self._start()
        self._open(list(self._given))
        for part, records in self._given.items():
            self._put(records[self._position(part, self.committed.get(part, 0)) :])

    def close(self) -> None:
        """Commit and stop, as a clean stop of a worker does."""
        self.commit()
        self._task.close(list(self._given))
        self._task.stop()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Hear from the task where a partition goes on."""
        self._sought[partition] = offset

    def set_timeout_ms(self, timeout_ms: int) -> None:
        """Hear of a delay, which a test does not wait for."""

    def assignment(self) -> Collection[TopicPartition]:
        """Return the partitions written so far."""
        return list(self._given)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hear of a pause; batches come when the test gives them."""

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Hear of the end of a pause."""

    def request_commit(self) -> None:
        """Take a request; the test commits."""

    def report_errant(self, record: SinkRecord, error: Exception) -> Any:
        """Fail, as a connector that tolerates no errors does."""
        del record
        raise error

    def _start(self) -> None:
        self._sought: dict[TopicPartition, int] = {}
        self._task = self._class.task_class()
        self._task.context = self
        self._task.start(self.config)

    def _open(self, partitions: list[TopicPartition]) -> None:
        self._task.open(partitions)

    def _position(self, partition: TopicPartition, offset: int) -> int:
        return self._sought.pop(partition, offset)

    def _put(self, records: list[SinkRecord]) -> None:
        for _ in range(_RETRIES):
            try:
                self._task.put(records)
            except RetriableException:
                continue
            return
        raise AssertionError(f"the sink refused a batch {_RETRIES} times")


def _by_partition(records: Iterable[SourceRecord]) -> dict[str, list[SourceRecord]]:
    found: dict[str, list[SourceRecord]] = defaultdict(list)
    for record in records:
        # a source may stamp records with the time of reading
        found[_key(record.source_partition)].append(replace(record, timestamp_ms=None))
    return found


def _difference(key: str, count: int, expected: list[SourceRecord], got: list[SourceRecord]) -> str:
    pairs = zip(expected, got, strict=False)
    index = next((i for i, (one, two) in enumerate(pairs) if one != two), None)
    if index is None:
        index = min(len(expected), len(got))
    due = repr(expected[index].value) if index < len(expected) else "no more"
    actual = repr(got[index].value) if index < len(got) else "nothing"
    return f"restart after record {count}, partition {key}: {due} should come, but {actual} came"


def _key(partition: Mapping[str, Any] | None) -> str:
    return json.dumps(partition, sort_keys=True)


def _plain(offset: Mapping[str, Any] | None) -> Any:
    return json.loads(json.dumps(offset))
