"""Spark's checkpoints: their formats, files and versions."""
