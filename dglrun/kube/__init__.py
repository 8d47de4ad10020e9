"""A small API server client for the pods of a job: standard library only, no Kubernetes package.

It knows what job pods may do (get, list and watch single pods by name, patch one ConfigMap, ask what they
may do) and no more.
"""
