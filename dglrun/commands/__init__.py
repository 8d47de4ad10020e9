"""Programs: the data subcommands of `dglrun`, and what a job runs by `python -m dglrun.commands.<name>`.

The job's own programs are validate_input, dgl_api, partition_rank, dispatch_rank, validate_parts and
kill_leftovers, in the partitioner or on the workers, as dglrun.workflow.partition_phases plans them.
"""
