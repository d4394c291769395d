"""Another plan for a home that has run: its state and logs are moved."""
