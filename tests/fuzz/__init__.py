"""A fuzzer of the operator on a real API server: hostile objects beside jobs that must not notice them.

`cases` makes the objects from a seed and needs no cluster; `run` submits them to an API server in batches,
watches the operator's process and judges.
"""
