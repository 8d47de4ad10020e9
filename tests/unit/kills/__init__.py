"""The verdict of `make kills` without a cluster."""
