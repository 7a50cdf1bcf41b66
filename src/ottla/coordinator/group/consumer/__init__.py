"""Consumer groups: members heartbeat, the coordinator assigns and reconciles (KIP-848).

Kafka: org.apache.kafka.coordinator.group.modern.consumer.
"""
