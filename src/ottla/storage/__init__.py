"""The log on disk: segments, indexes, producer state, recovery; pure cores over a Directory.

Kafka: the storage module, org.apache.kafka.storage.internals.log.
"""
