"""Forms of keys and values: Kafka's primitives, JSON, Avro, Protobuf, and heads with schema ids.

Kafka: org.apache.kafka.common.serialization; Confluent: KafkaAvroSerializer and its like. Clients,
streams and whatever knows schemas build their serializers of these.
"""
