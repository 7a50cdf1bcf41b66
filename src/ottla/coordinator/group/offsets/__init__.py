"""Committed offsets of groups.

Kafka: org.apache.kafka.coordinator.group.OffsetMetadataManager.
"""
