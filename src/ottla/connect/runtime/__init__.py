"""The worker of connectors: its herder decides, its tasks move records, its REST API asks.

`herder` is a state machine without clock, threads and sockets; `worker` carries its effects out.

Kafka: org.apache.kafka.connect.runtime.
"""
