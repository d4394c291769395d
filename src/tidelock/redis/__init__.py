"""Redis servers: how a URL names one, and what its troubles mean. Logs and cached state are kept there."""
