"""One module a command.

Kafka: none.
"""
