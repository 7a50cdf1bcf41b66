"""Login mechanisms as state machines: bytes in, bytes out.

Kafka: org.apache.kafka.common.security.authenticator, .plain, .scram.
"""
