"""dglrun: partitions graphs, dispatches the parts and launches DGL training inside job images."""
