"""What brokers request of the controller, on its listener.

Kafka: kafka.server.ControllerApis.
"""
