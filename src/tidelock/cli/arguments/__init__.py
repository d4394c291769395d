"""What can be written behind `tidelock`; nothing of a command is loaded for it."""
