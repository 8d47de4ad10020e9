"""Faults of every kind, in every phase, of every role: what becomes of the job, on a real API server."""
