"""Topics of Kafka that others write, at the ends of a pipeline."""
