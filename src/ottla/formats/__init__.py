"""Forms of keys and values: primitives, JSON, Avro, Protobuf, JSON Schema, heads with schema ids.

Kafka: org.apache.kafka.common.serialization; Confluent: KafkaAvroSerializer and its like. Clients,
streams and whatever knows schemas build their serializers of these.
"""
