"""From a declaration to segments that can be started: checks, plan, changed code."""
