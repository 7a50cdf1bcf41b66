"""Record batches: bytes as clients send them, brokers keep them and disks hold them.

Kafka: org.apache.kafka.common.record.
"""
