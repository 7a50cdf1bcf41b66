"""Command line parsing and the settings of tools.

Kafka: none.
"""
