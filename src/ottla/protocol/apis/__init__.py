"""One module per API, with Kafka's name; each contains the request and the response."""
