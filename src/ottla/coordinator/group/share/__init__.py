"""Share groups (KIP-932): members, epochs, assignment, and which share partitions have a state.

Kafka: org.apache.kafka.coordinator.group.modern.share.
"""
