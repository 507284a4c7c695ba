"""Random number generators, exact Gaussian, Laplace and Poisson draws, and the exponential mechanism."""
