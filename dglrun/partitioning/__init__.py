"""Partition assignment: which part each node belongs to (step 1 of the pipeline, user guide 7.1.2).

Whatever the method, the result is `<ntype>.txt` for every node type and partition_meta.json.
"""

IMBALANCE = 1.05
"""The largest part over the mean that is asked for by default."""
