"""The impure edge: cluster access, queue, reconcile loop, kopf handlers."""
