"""Files of a partition, pulled by the pod that needs them from the pod that has them, over TLS.

The owner serves blocks of files (`file_server`); the receiver (`receiver`, run by `python -m
dglrun.transfer.pull`) asks for those that it lacks, compares each block's SHA-256 as it comes, and shows the
files when all are whole. Standard library only: the receiver also runs in the image watcher-loop.
"""
