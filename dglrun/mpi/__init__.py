"""MPI: the mpirun command, and what the ranks that it starts say to each other.

mpi4py is imported only on the ranks, never by the process that plans or runs mpirun.
"""
