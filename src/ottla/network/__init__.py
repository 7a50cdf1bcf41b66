"""Connections: listeners and accepted connections on an event loop, and the request channel."""
