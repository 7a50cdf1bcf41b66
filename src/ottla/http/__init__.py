"""The one HTTP host: a port, TLS, a login, limits; what it serves are pages.

Kafka: none; the JVM's exporters bring their own server, as Connect brings Jetty.
"""
