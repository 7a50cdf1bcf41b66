"""What one side has answered so far: the ids that later steps of a session refer to.

Kafka: none.
"""

from __future__ import annotations

from typing import Any

from ottla.types import ZERO_UUID, Uuid
from tests.conformance.sessions.batches import encode
from tests.conformance.sessions.steps import Records, Ref, Step

UNKNOWN_ID = Uuid(b"no such topic id")
_MEMBER_ID_REQUIRED = 79
_RECENT = 5
_BUMPS_FROM = 5
"""The first version of EndTxn that gives the producer its next epoch."""


class Memory:
    """Ids by what they belong to; names have the session's prefix in place of `{}`."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.topic_ids: dict[str, Uuid] = {}
        self._members: dict[str, list[str]] = {}
        self._generations: dict[str, tuple[int, str | None]] = {}
        self._producers: dict[int, tuple[int, int]] = {}
        self._sequences: dict[tuple[int, str, int], int] = {}
        self._fetch_sessions: dict[tuple[int, str], tuple[int, int]] = {}
        """By client and node: another node does not know them."""
        self._node = ""
        self._instances: dict[int, Uuid] = {}
        self._subscriptions: dict[int, int] = {}
        self._sent: dict[int, dict[tuple[str, int], Records]] = {}

    # ------------------------------------------------------------ references

    def resolve(self, step: Step) -> dict[str, Any]:
        """Return the fields of a step with this side's ids."""
        self._sent[step.number] = {}
        self._node = step.node
        fields: dict[str, Any] = self._resolve(step.fields, step.number)
        return fields

    def _resolve(self, value: Any, number: int) -> Any:
        if isinstance(value, Ref):
            return getattr(self, value.kind)(*value.arguments)
        if isinstance(value, Records):
            return self._records(value, number)
        if isinstance(value, str):
            return value.replace("{}", self.prefix)
        if isinstance(value, list):
            return [self._resolve(one, number) for one in value]
        if isinstance(value, dict):
            return {name: self._resolve(one, number) for name, one in value.items()}
        return value

    def member(self, group: str, pick: int) -> str:
        """Return one of the newest member ids of a group."""
        known = self._members.get(self._named(group), [])[-_RECENT:]
        return known[pick % len(known)] if known else ""

    def generation(self, group: str, step: int) -> int:
        """Return the last generation of a group, or one next to it."""
        return self._generations.get(self._named(group), (0, None))[0] + step

    def protocol(self, group: str) -> str | None:
        """Return the protocol that the last generation of a group uses."""
        return self._generations.get(self._named(group), (0, "range"))[1]

    def topic_id(self, topic: str) -> Uuid:
        """Return the last id of a topic, also of one that is deleted."""
        return self.topic_ids.get(self._named(topic), UNKNOWN_ID)

    def producer_id(self, slot: int) -> int:
        """Return the id that the last InitProducerId of a slot was answered with."""
        return self._producers.get(slot, (-1, -1))[0]

    def producer_epoch(self, slot: int, step: int = 0) -> int:
        """Return the epoch of a slot's producer, or one next to it."""
        return self._producers.get(slot, (-1, -1))[1] + step

    def fetch_session(self, slot: int) -> int:
        """Return the id of a slot's fetch session; 0 without one."""
        return self._fetch_sessions.get((slot, self._node), (0, 0))[0]

    def fetch_epoch(self, slot: int, step: int) -> int:
        """Return the next epoch of a slot's fetch session, or one next to it."""
        id_and_epoch = self._fetch_sessions.get((slot, self._node))
        return -1 if id_and_epoch is None else id_and_epoch[1] + step

    def instance(self, slot: int) -> Uuid:
        """Return the id under which a client pushes its metrics; zero before it has one."""
        return self._instances.get(slot, ZERO_UUID)

    def own_instance(self) -> Uuid:
        """Return an id that no node gave, and no other session has.

        Kafka knows a client for some minutes after its connection that spoke for another one, too.
        """
        return Uuid(self.prefix.encode().ljust(16, b".")[:16])

    def subscription(self, slot: int, step: int) -> int:
        """Return the subscription that a client was answered, or one next to it."""
        return self._subscriptions.get(slot, 0) + step

    def _records(self, records: Records, number: int) -> bytes:
        topic = self._named(records.topic)
        producer_id = epoch = sequence = -1
        if records.producer is not None:
            producer_id, epoch = self._producers.get(records.producer, (-1, -1))
            if producer_id >= 0:
                key = (records.producer, topic, records.partition)
                sequence = self._sequences.get(key, 0) + records.sequence_step
                epoch += records.epoch_step
        self._sent[number][topic, records.partition] = records
        return encode(records, producer_id, epoch, sequence)

    def _named(self, name: str) -> str:
        return name.replace("{}", self.prefix)

    # ------------------------------------------------------------ answers

    def learn(self, step: Step, fields: dict[str, Any], response: Any) -> None:
        """Take the ids from the answer to a step."""
        learn = getattr(self, f"_learn_{step.label}", None)
        if learn is not None and not isinstance(response, str):
            learn(step, fields, response)

    def _learn_join_group(self, _step: Step, fields: dict[str, Any], response: Any) -> None:
        group = fields["group_id"]
        if response.error_code in (0, _MEMBER_ID_REQUIRED):
            known = self._members.setdefault(group, [])
            if response.member_id not in known:
                known.append(response.member_id)
        if response.error_code == 0:
            self._generations[group] = (response.generation_id, response.protocol_name)

    def _learn_init_producer_id(self, step: Step, _fields: dict[str, Any], response: Any) -> None:
        if response.error_code == 0:
            slot = step.client
            self._producers[slot] = (response.producer_id, response.producer_epoch)
            self._sequences = {key: n for key, n in self._sequences.items() if key[0] != slot}

    def _learn_end_txn(self, step: Step, fields: dict[str, Any], response: Any) -> None:
        if step.version >= _BUMPS_FROM and response.error_code == 0 and response.producer_id >= 0:
            self._learn_init_producer_id(step, fields, response)

    def _learn_produce(self, step: Step, _fields: dict[str, Any], response: Any) -> None:
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        for topic in response.responses:
            name = topic.name or names.get(topic.topic_id, "")
            for partition in topic.partition_responses:
                records = self._sent[step.number].get((name, partition.index))
                if records is None or records.producer is None or partition.error_code:
                    continue
                key = (records.producer, name, partition.index)
                sequence = self._sequences.get(key, 0)
                self._sequences[key] = max(
                    sequence, sequence + records.sequence_step + records.count
                )

    def _learn_fetch(self, step: Step, fields: dict[str, Any], response: Any) -> None:
        if step.version < 7 or response.error_code:
            return
        epoch = fields.get("session_epoch", -1)
        if response.session_id:
            following = 1 if epoch <= 0 else epoch + 1
            self._fetch_sessions[step.client, step.node] = (response.session_id, following)

    def _learn_get_telemetry_subscriptions(
        self, step: Step, _fields: dict[str, Any], response: Any
    ) -> None:
        if response.error_code == 0:
            self._instances[step.client] = response.client_instance_id
            self._subscriptions[step.client] = response.subscription_id
