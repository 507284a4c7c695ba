"""Settings of every test."""

import os

# Threads of OpenBLAS wait for each other by spinning: small products of two test processes on two cores took
# five times the CPU time. Set before NumPy is imported; processes that tests start inherit it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from hypothesis import settings

# The same examples in every run: a failure found once is a failure found always.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
