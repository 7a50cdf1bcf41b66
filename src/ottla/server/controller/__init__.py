"""The controller role: its member of the quorum and the APIs that it decides.

Kafka: kafka.server.ControllerServer.
"""
