"""The log on disk: segments, indexes, producer state and recovery, over a Directory.

Kafka: the storage module, org.apache.kafka.storage.internals.log.
"""
