"""Output of `ottla dump-log` by file type.

Kafka: none.
"""
