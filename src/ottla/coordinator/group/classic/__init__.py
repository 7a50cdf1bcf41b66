"""Classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Kafka: org.apache.kafka.coordinator.group.classic.
"""
