"""The runtime `process`: a connector and its tasks in a process of their own.

Kafka: none; its connectors share the worker's JVM.
"""
