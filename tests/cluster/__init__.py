"""Bring up a real one-node Kubernetes without a container engine, and take it down without a trace.

The tool exists so that the operator is tested against the programs that users run: the API server, the
controllers, a kubelet that starts real containers. It imports nothing of the operator and needs the
standard library only, so that it runs before anything of the project is installed.
"""
