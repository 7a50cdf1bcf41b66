"""The node of `ottla dev`: its authority, its files, and how clients reach it.

Kafka: none.
"""
