"""`tidelock demo`: processes (`children`), what the logs show of them (`progress`), the story, and its screens."""
