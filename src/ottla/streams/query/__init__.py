"""Queries of an application's stores, as of its last committed micro-batch.

Kafka: org.apache.kafka.streams.query, state.ReadOnlyKeyValueStore and its like.
"""
