"""Performance tools.

Kafka: none.
"""
