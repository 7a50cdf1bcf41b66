"""`ottla quickstart`: a node, real events, a Spark job and a picture, in about a minute.

Kafka: the quickstart page of its documentation.
"""
