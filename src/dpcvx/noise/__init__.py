"""Randomness on a lattice: generators, Gaussian, Laplace and Poisson draws, exact selection."""
