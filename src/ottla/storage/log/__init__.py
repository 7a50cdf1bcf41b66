"""The log of one partition: append, read, truncate, recover, retain.

Kafka: org.apache.kafka.storage.internals.log.UnifiedLog.
"""
