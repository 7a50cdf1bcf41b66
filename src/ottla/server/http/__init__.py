"""The HTTP endpoint: /metrics and the health probes.

Kafka: none.
"""
