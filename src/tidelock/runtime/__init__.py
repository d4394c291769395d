"""Pipelines that run: declared, cut, started, watched, restarted, stopped, copied and restored."""
