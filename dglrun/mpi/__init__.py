"""Distributed partitioning: `python3 -m mpi4py -m dglrun.mpi` under mpirun, and the mpirun command.

mpi4py is imported only by the program that mpirun starts, never by the one that plans the command.
"""
