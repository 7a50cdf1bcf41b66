"""A topology's plan: the stages and the paths of columns that Spark runs in each micro-batch.

Kafka: org.apache.kafka.streams.processor.internals.{InternalTopologyBuilder, TaskManager}.
"""
