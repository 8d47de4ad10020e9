"""What the operator and the job images agree on: names, environment, file formats, exit codes.

Standard library only, and plain syntax, so that small images can carry it.
"""
