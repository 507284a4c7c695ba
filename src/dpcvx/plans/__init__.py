"""A plan, its price, its oracle and its release: what is fixed, asked and published."""
