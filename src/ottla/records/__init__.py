"""Record batches: the format on the wire, in the broker and on disk.

Kafka: org.apache.kafka.common.record.
"""
