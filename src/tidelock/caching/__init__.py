"""What a job does with its cached state: gates, snapshots, repair, reading from outside."""
