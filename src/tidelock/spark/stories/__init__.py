"""What a failure says: tracebacks, and the story that people are told."""
