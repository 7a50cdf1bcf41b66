"""Command line options, and the settings they lead to.

Kafka: none.
"""
