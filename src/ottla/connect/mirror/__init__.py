"""Mirrors topics, group offsets and access control of one cluster to another: MirrorMaker 2.

Kafka: org.apache.kafka.connect.mirror.
"""
