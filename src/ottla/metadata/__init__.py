"""The cluster metadata: its records and the state built from them."""
