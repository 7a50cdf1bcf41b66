"""The distributed worker: several workers divide connectors and tasks, and know them from topics.

Kafka: org.apache.kafka.connect.runtime.distributed.
"""
