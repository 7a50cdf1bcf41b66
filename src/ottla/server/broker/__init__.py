"""The broker role: what handlers work on, internal topics, telemetry and log maintenance.

Kafka: kafka.server.BrokerServer.
"""
