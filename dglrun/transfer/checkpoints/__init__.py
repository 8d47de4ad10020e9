"""Checkpoints, kept while a training runs: from each rank's folder to the launcher, or to a user's place.

A keeper on each worker (`keeper`, run by `python -m dglrun.transfer.checkpoints`, a child of the agent) sends
what is new in rounds that the launcher (`server`) begins on all workers at the same moment. At its start it
brings back what was kept. Standard library only, but for `stored`, which a place of the user's needs.
"""
