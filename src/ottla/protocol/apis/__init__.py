"""One module an API, named as Kafka names it; each holds the request and the response."""
