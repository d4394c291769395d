"""Where the rows of a segment go: logs, functions, files, topics."""
