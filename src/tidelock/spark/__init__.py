"""Tidelock on Spark: the only folder that imports pyspark."""
