"""Log directories as data: the replicas of each, in the JSON of Kafka's tool.

Kafka: LogDirsCommand.formatAsJson.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.clients.admin.cluster import LogDirDescription
    from ottla.errors import KafkaError


def log_dirs_document(
    brokers: Mapping[int, Sequence[LogDirDescription]],
    topics: Sequence[str],
    error_text: Callable[[KafkaError], str],
) -> dict[str, object]:
    """Return the directories by broker id; the replicas of these topics only, if there are any."""
    return {
        "brokers": [
            {
                "broker": broker,
                "logDirs": [
                    {
                        "partitions": [
                            {
                                "partition": str(partition),
                                "size": replica.size,
                                "offsetLag": replica.offset_lag,
                                "isFuture": replica.is_future,
                            }
                            for partition, replica in directory.replicas.items()
                            if not topics or partition.topic in topics
                        ],
                        "error": None if directory.error is None else error_text(directory.error),
                        "logDir": directory.path,
                    }
                    for directory in directories
                ],
            }
            for broker, directories in brokers.items()
        ],
        "version": 1,
    }
