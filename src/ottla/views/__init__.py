"""Facts about a cluster as data; the tools print them as text and as JSON.

Kafka: none; its tools compute and print in one method.
"""
