"""Settings of every test."""

from hypothesis import settings

# The same examples in every run: a failure found once is a failure found always.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
