"""The node: roles, dispatch, handlers, and everything that touches loop, clock and files."""
