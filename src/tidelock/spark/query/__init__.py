"""Streaming queries: starting them, their batches, what they tell and how they fail."""
