"""The DGL operator: reconciles DGLJob resources (qihoo.net/v1alpha1)."""
