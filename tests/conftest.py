"""Settings of all tests."""

from hypothesis import HealthCheck, settings

# No deadline for one example: a busy machine is no failure. The same examples in every run of the gate:
# a new one is found by `--hypothesis-profile=default`.
settings.register_profile(
    "gate", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("gate")
