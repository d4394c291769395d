"""A pipeline that runs: started, watched, restarted, stopped, shown."""
