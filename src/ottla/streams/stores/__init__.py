"""The stores of stateful processors, over any map from bytes to bytes.

Kafka: org.apache.kafka.streams.state.
"""
