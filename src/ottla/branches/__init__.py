"""Branches of a node's log directory: forks that share the sealed segments by hard links.

Kafka: none.
"""
