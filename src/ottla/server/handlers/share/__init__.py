"""The APIs of share groups (KIP-932)."""
