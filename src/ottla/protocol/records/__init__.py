"""Records on disk in the same notation as the messages on the wire."""
