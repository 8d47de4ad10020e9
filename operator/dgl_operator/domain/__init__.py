"""Pure decisions: what is observed, what follows from it, what the status says."""
