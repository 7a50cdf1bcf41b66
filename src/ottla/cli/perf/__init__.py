"""The measuring and verifying tools.

Kafka: none.
"""
