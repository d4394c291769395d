"""Processes of Spark: the session, Java, Python workers and sources."""
