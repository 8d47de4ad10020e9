"""What a job's observed state means and what follows from it. Pure: no cluster, no clock, no rendering."""
