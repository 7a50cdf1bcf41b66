"""Made-up records of a schema, the same for a seed in every run, version and process.

Kafka: Confluent's io.confluent.kafka.connect.datagen, whose class name and settings it takes.
"""
