"""Streams groups: members heartbeat with a topology, the coordinator assigns tasks (KIP-1071).

Kafka: org.apache.kafka.coordinator.group.streams.
"""
