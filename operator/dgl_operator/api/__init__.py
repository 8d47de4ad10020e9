"""The API: pydantic models and what is generated from them (CRD, RBAC rules, install files)."""
