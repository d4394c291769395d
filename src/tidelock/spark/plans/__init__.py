"""Spark's plans: walking them, and their fingerprints."""
