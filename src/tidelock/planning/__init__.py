"""Cost models, and the search for the plan that recovers fastest within a budget. Pure."""
