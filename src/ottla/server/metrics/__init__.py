"""Metrics of a running node, collected on its loop.

Kafka: kafka.server.metrics, org.apache.kafka.server.metrics.
"""
