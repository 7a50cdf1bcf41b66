"""Segments of a log, in order, and their recovery.

Kafka: none.
"""
