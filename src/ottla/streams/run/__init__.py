"""A plan as it runs: the application on the driver, and its tasks in Spark's workers.

Kafka: org.apache.kafka.streams.KafkaStreams, processor.internals.{StreamThread, StreamTask}.
"""
