"""The declaration of a pipeline, and loading one from a file."""
