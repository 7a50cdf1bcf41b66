"""Offset, time and transaction indexes of a segment.

Kafka: none.
"""
