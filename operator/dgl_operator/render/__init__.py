"""Pure rendering: from a job to the objects it needs, as plain dicts."""
