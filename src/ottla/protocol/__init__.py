"""Kafka's wire and disk messages: notation, codecs and one module an API."""
