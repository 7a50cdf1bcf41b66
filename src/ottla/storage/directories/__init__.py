"""Log directories: lock, identity, checkpoints and the logs found in them.

Kafka: none.
"""
