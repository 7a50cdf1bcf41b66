"""Kafka's configuration: every name, its type, default and meaning, for brokers and clients.

Kafka: org.apache.kafka.common.config, kafka.server.KafkaConfig. Import what you need from the
module that has it: `broker` (parse_broker_config), `topic`, `group`, `client`, `properties`.
"""
