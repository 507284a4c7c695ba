"""The way of a record: cells, columns, quantisation, and exact sums over what is stored."""
