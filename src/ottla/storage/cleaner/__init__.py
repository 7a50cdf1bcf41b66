"""Log compaction: keeps the last record of each key.

Kafka: org.apache.kafka.storage.internals.log.LogCleaner and its parts.
"""
