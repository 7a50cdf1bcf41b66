"""Metrics of a node: families under Kafka's names, rates, and the Prometheus text format.

Kafka: com.yammer.metrics, org.apache.kafka.common.metrics, and the JMX exporters used with them.
"""
