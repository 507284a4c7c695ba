"""Products of stored integers with vectors and weights, exact in 64 bits."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import numpy as np

from dpcvx.data.kernels.jit import compiled

TILE = 2**16  # entries of the vector that a product keeps in cache
SHORT_ROW = 2**12  # up to here one stream of rows is read faster than four side by side; measured


@compiled
def dot(row, vector):
    """<row, vector> of 16-bit and 32-bit integers, in 64 bits."""
    total = np.int64(0)
    for j in range(vector.shape[0]):
        total += np.int64(row[j]) * np.int64(vector[j])
    return total


@compiled
def four_dots(a, b, c, e, vector):
    """The same for four rows: the vector is loaded and widened once for all."""
    ta, tb, tc, te = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for j in range(vector.shape[0]):
        v = np.int64(vector[j])
        ta += a[j] * v
        tb += b[j] * v
        tc += c[j] * v
        te += e[j] * v
    return ta, tb, tc, te


@compiled
def multiply_dense(matrix, vectors, start, stop, at, out):
    """out[k, at + i] = <matrix[start + i], vectors[k]> for rows start to stop."""
    width = matrix.shape[1]
    for k in range(vectors.shape[0]):
        for i in range(stop - start):
            out[k, at + i] = 0
    for left in range(0, width, TILE):
        right = min(width, left + TILE)
        i = start
        # Slices of a row are known to be contiguous; a slice of the matrix would not be.
        while width > SHORT_ROW and i + 4 <= stop:
            a, b = matrix[i][left:right], matrix[i + 1][left:right]
            c, e = matrix[i + 2][left:right], matrix[i + 3][left:right]
            to = at + i - start
            for k in range(vectors.shape[0]):
                ta, tb, tc, te = four_dots(a, b, c, e, vectors[k][left:right])
                out[k, to] += ta
                out[k, to + 1] += tb
                out[k, to + 2] += tc
                out[k, to + 3] += te
            i += 4
        while i < stop:
            for k in range(vectors.shape[0]):
                out[k, at + i - start] += dot(matrix[i][left:right], vectors[k][left:right])
            i += 1


@compiled
def multiply_columns(columns, vectors, start, stop, out):
    """The same for rows that are stored feature-major: out[k, i] = <columns[:, start + i], vectors[k]>.

    With few features, consecutive records fill the vector registers of the processor; the features of one
    record do not.
    """
    d, count = columns.shape[0], stop - start
    for k in range(vectors.shape[0]):
        vector, scores = vectors[k], out[k][:count]
        for i in range(count):
            scores[i] = 0
        j = 0
        while j + 4 <= d:
            a, b = columns[j][start:stop], columns[j + 1][start:stop]
            c, e = columns[j + 2][start:stop], columns[j + 3][start:stop]
            va, vb, vc, ve = (
                np.int64(vector[j]),
                np.int64(vector[j + 1]),
                np.int64(vector[j + 2]),
                np.int64(vector[j + 3]),
            )
            for i in range(count):
                scores[i] += (a[i] * va + b[i] * vb) + (c[i] * vc + e[i] * ve)
            j += 4
        while j < d:
            add_dense(columns[j][start:stop], np.int64(vector[j]), scores)
            j += 1


@compiled
def multiply_sparse(indptr, indices, values, vectors, start, stop, at, out):
    """out[k, at + i] = <row start + i, vectors[k]> for compressed rows start to stop."""
    for k in range(vectors.shape[0]):
        vector, scores = vectors[k], out[k]
        for i in range(stop - start):
            total = np.int64(0)
            for e in range(indptr[start + i], indptr[start + i + 1]):
                # Unsigned: a column is never counted from the end, and the compiler need not ask.
                total += np.int64(values[e]) * np.int64(vector[np.uint64(indices[e])])
            scores[at + i] = total


@compiled
def accumulate_dense(matrix, weights, start, stop, sums):
    """sums[k] += sum_i weights[k, i] matrix[start + i], eight rows at a time."""
    for k in range(weights.shape[0]):
        total = sums[k]
        i = start
        while i + 8 <= stop:
            add_eight(matrix[i : i + 8], weights[k][i - start : i - start + 8], total)
            i += 8
        while i < stop:
            add_dense(matrix[i], np.int64(weights[k, i - start]), total)
            i += 1


@compiled
def add_eight(rows, weights, total):
    """total += sum of eight weighted rows."""
    a, b, c, e = np.int64(weights[0]), np.int64(weights[1]), np.int64(weights[2]), np.int64(weights[3])
    f, g, h, p = np.int64(weights[4]), np.int64(weights[5]), np.int64(weights[6]), np.int64(weights[7])
    for j in range(rows.shape[1]):
        first = (rows[0, j] * a + rows[1, j] * b) + (rows[2, j] * c + rows[3, j] * e)
        total[j] += first + ((rows[4, j] * f + rows[5, j] * g) + (rows[6, j] * h + rows[7, j] * p))


@compiled
def accumulate_columns(columns, weights, start, stop, sums):
    """sums[k, j] += <weights[k], columns[j]> over records start to stop, four features at a time."""
    d, count = columns.shape[0], stop - start
    for k in range(weights.shape[0]):
        weight, total = weights[k][:count], sums[k]
        j = 0
        while j + 4 <= d:
            ta, tb, tc, te = four_dots(
                columns[j][start:stop],
                columns[j + 1][start:stop],
                columns[j + 2][start:stop],
                columns[j + 3][start:stop],
                weight,
            )
            total[j] += ta
            total[j + 1] += tb
            total[j + 2] += tc
            total[j + 3] += te
            j += 4
        while j < d:
            total[j] += dot(columns[j][start:stop], weight)
            j += 1


@compiled
def accumulate_sparse(indptr, indices, values, weights, start, stop, sums):
    """sums[k] += sum_i weights[k, i] times compressed row start + i."""
    for k in range(weights.shape[0]):
        total = sums[k]
        for i in range(stop - start):
            weight = np.int64(weights[k, i])
            for e in range(indptr[start + i], indptr[start + i + 1]):
                total[np.uint64(indices[e])] += np.int64(values[e]) * weight


@compiled
def add_dense(column, amount, out):
    """out += amount * column."""
    for i in range(column.shape[0]):
        out[i] += np.int64(column[i]) * amount


@compiled
def add_sparse(rows, values, amount, out):
    """out += amount * column, the column given by its stored entries."""
    for e in range(rows.shape[0]):
        out[rows[e]] += np.int64(values[e]) * amount
