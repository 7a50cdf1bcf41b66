"""Lines of a file to a topic, and a topic's values to the lines of a file.

Kafka: org.apache.kafka.connect.file.
"""
