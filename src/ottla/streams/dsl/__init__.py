"""The DSL: streams, tables and groupings that add processors to a topology.

Kafka: org.apache.kafka.streams.kstream.
"""
