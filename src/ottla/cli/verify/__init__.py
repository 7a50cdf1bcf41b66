"""Tools that verify a cluster: replica batches, acknowledged and consumed records.

Kafka: none.
"""
