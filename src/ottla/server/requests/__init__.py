"""From a frame to a handler and back: dispatch, quotas, timing and work for other threads.

Kafka: kafka.server.KafkaApis, kafka.network.RequestChannel.
"""
