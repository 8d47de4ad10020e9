"""A job's objects as plain dictionaries. Pure: the same job, hosts and settings give the same bytes."""
