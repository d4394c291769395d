"""One file per command: what it asks, and what it prints."""
