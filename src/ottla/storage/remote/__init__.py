"""Segments of logs in remote storage (KIP-405).

Kafka: org.apache.kafka.server.log.remote, of the modules storage and storage-api.
"""
