"""Members of share groups: the sans-IO core, and an asyncio and a blocking façade (KIP-932)."""
