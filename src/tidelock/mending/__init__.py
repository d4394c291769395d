"""A home that has lost something is put back to the newest state that fits together."""
