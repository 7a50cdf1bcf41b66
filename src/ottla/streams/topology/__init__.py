"""A topology, its text form, and its picture.

Kafka: org.apache.kafka.streams.{Topology, TopologyDescription}.
"""
