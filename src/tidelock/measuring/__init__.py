"""What operators and segments cost on Spark, measured."""
