"""Text and JSON as Kafka's tools print them.

Kafka: none.
"""
