#!/bin/sh
# Install what the modes ParMETIS and DistParMETIS need from Debian main: MPI, its Python bindings and
# the free partitioners METIS and Zoltan. WITH_MPI= (empty) leaves it out.
set -eu

[ -n "${WITH_MPI:-}" ] || exit 0

apt-get update
apt-get install --no-install-recommends --yes libmetis5 libtrilinos-zoltan-13.2 openmpi-bin python3-mpi4py
apt-get clean
rm -rf /var/lib/apt/lists/*
python3 -c "import mpi4py; print('mpi4py', mpi4py.__version__)"
