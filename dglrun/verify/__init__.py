"""Proof that a partition folder is what DGL relies on, and that it is its source, piece by piece."""
