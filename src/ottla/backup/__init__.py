"""Backups of a node's log directory, and restores from them.

Kafka: none.
"""
