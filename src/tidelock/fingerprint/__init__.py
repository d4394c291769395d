"""Fingerprints: what tells one version of a user's code from another, the same in every run.

`code` walks from a function to all that it uses in the user's own modules, `source` makes formatting, comments and
the names of local variables not count, and `comparing` says what differs between two fingerprints.
"""
