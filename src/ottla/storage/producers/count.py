"""How many producers a node remembers in all its logs, and how many it may.

Kafka: none; its kafka.log.LogManager counts them nowhere, and nothing bounds them but their age.
"""

from __future__ import annotations

from ottla.errors import ErrorCode, KafkaError

DEFAULT_MAX_PRODUCERS = 1_000_000


class ProducerCount:
    """Shared by the producer states of a node's logs, each of which adds what it has."""

    __slots__ = ("count", "most", "refused_count")

    def __init__(self, most: int = DEFAULT_MAX_PRODUCERS) -> None:
        self.count = 0
        self.most = most
        self.refused_count = 0
        """Batches of new producers that were refused."""

    def check_room(self, producer_id: int, partition: str) -> None:
        """Refuse a client's new producer while there is no room: POLICY_VIOLATION.

        Clients do not send such a batch again, as they would with UNKNOWN_PRODUCER_ID for ever.
        """
        if self.count >= self.most:
            self.refused_count += 1
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Producer {producer_id} is new in {partition}, and this broker remembers "
                f"{self.count} producers already (producer.states.max)",
            )
