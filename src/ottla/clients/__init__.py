"""Native clients: sans-IO cores with an asyncio and a blocking façade over each."""
