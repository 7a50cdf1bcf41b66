"""The node itself: its configuration, listeners, identity, start and stop.

Kafka: kafka.server.KafkaRaftServer.
"""
