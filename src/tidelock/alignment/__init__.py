"""Jobs that share epochs: subjects, the alignment protocol (pure), and subjects of several producers."""
