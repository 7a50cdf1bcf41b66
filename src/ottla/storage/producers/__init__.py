"""Producer state of a log: sequences, epochs, open transactions, snapshots.

Kafka: none.
"""
