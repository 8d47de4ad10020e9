"""What `dglrun` does without a subcommand: from flags and environment to a plan, and the plan's execution."""
