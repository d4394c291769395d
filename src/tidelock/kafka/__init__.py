"""Kafka brokers: how a URL names them, and what their troubles mean. Logs are kept there, and topics are read."""
