"""Segments as queries: what operators build, and keyed state."""
