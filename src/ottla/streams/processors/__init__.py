"""Processors of the DSL's operators in plain Python: no Spark, no clock, no files.

Kafka: org.apache.kafka.streams.kstream.internals.
"""
