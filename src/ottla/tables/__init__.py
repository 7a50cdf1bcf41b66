"""Topics as tables: Arrow record batches straight from segment files, or from a running node.

Kafka: none.
"""
