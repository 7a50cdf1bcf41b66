"""Log lines, log levels and rate limits of log messages.

Kafka: none.
"""
