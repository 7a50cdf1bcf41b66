"""Members of groups: what they send, for every kind of group."""
