"""Records, keys in windows, and their bytes.

Kafka: org.apache.kafka.common.serialization, streams.processor.api.Record, kstream.Windowed.
"""
