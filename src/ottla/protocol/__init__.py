"""Kafka's messages on the wire and on disk: schema notation, codecs and one module per API."""
