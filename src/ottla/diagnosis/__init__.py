"""From a symptom to its cause and the next step.

Kafka: none; its texts are those of error codes.
"""
