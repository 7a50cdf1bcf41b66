"""The real operating system: clocks, files, worker threads and timers.

Kafka: none.
"""
