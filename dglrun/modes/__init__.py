"""Programs by which a job partitions a chunked graph without a user's script, as dglrun.parts plans it.

`python -m dglrun.modes.<name>` in the partitioner or on the workers: `examine`, `dgl_api`, `check`, `sweep`.
"""
