"""All logs of a node, and their background maintenance.

Kafka: org.apache.kafka.storage.internals.log.LogManager.
"""
