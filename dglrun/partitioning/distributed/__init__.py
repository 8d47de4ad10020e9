"""Partitioners that run on many ranks: `python3 -m mpi4py -m dglrun.commands.partition_rank` under mpirun.

mpi4py is imported only by the program that mpirun starts, never by the one that plans the command.
"""
