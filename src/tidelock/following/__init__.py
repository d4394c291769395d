"""Reading logs of one's own and of others in step: rounds, agreed positions, merging."""
