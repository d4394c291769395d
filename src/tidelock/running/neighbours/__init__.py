"""What a run has to do with other jobs: subjects, alignment, shared publications."""
