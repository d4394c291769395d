"""What a home holds: the record of its pipeline, events, identities of its logs, who has it."""
