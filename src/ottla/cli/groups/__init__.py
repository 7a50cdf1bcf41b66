"""Parts of `ottla consumer-groups`: tables, offset resets, offset deletion.

Kafka: none.
"""
