"""Tiered storage of a broker: its metadata topic, copy, expiry and reads (KIP-405).

Kafka: org.apache.kafka.server.log.remote.{metadata.storage, storage}.
"""
