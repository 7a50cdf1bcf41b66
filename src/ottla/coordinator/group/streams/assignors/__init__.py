"""Assignors of tasks; Kafka 4.3 has one.

Kafka: org.apache.kafka.coordinator.group.streams.assignor.
"""
