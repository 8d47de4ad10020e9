"""The matrix of faults without a cluster."""
