"""What `ottla dump-log` prints, by kind of file.

Kafka: none.
"""
