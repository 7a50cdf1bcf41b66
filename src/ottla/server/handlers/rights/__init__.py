"""Which right each API needs, by kind of resource; `server/requests/guards.py` calls them.

Kafka: the checks in kafka.server.{KafkaApis, ControllerApis}.
"""
