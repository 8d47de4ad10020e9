"""Programs: the data subcommands of `dglrun`, and what a job runs by `python -m dglrun.commands.<name>`.

A subcommand for users (chunk, ids, convert, partition, dispatch, verify, report) has `add_flags(parser)` and
`run(args)`; dglrun.cli has its description and example. dglrun's own programs have `main(argv)`: pack,
which runs on the workers, and validate_input, dgl_api, partition_rank, dispatch_rank, validate_parts and
kill_leftovers, as dglrun.workflow.partition_phases plans them.

What they share: arguments (parsers, usage errors), flags, program (how a command ends) and elapsed (shows
that it still runs).
"""
