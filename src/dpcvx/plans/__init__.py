"""Plans: the stages and price of a run, the oracle that answers its solver, execution and release."""
