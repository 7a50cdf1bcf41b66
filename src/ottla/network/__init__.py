"""Sockets on one event loop: listeners, connections, frames in, buffers and file slices out."""
