"""Authentication and authorization: principals, login mechanisms, access control lists.

Kafka: org.apache.kafka.common.security, org.apache.kafka.metadata.authorizer.
"""
