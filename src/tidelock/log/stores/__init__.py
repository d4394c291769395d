"""The stores of epoch logs: a directory, Redis, Kafka."""
