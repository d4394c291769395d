"""Epoch logs as sources of Spark: reading, following, watermarks, options."""
