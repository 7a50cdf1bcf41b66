"""What a node tells about itself: families under Kafka's names, rates, and Prometheus text.

Kafka: com.yammer.metrics, org.apache.kafka.common.metrics; and the exporters beside them.
"""
