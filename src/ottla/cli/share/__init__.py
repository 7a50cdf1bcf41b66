"""The tools of share groups.

Kafka: bin/kafka-share-groups.sh, kafka-*-share-consumer.sh, kafka-share-consumer-perf-test.sh.
"""
