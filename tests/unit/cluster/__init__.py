"""Tests of the pure parts of the cluster tool: no root, no network."""
