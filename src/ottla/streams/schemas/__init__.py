"""Serdes by the schemas of other projects: Avro and Protobuf.

Kafka: none; Confluent: KafkaAvroSerializer, KafkaProtobufSerializer.
"""
