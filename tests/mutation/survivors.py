"""Changes that no quick test notices, by file, line of source and change, with the reason."""

from __future__ import annotations

__all__ = ["EQUIVALENT", "LEFT"]

# The program does the same for every input, or something that is as right.
EQUIVALENT: dict[str, str] = {
    "accounting/bounded_range.py | reach = min(count * span, math.ceil((8 * eta * math.sqrt(count) + count * "
    "eta**2 / 8) / h)) | 8 -> 16": "a longer grid gives the same bounds, more slowly",
    "accounting/gaussian.py | if mu < _SMALL_MU: | < -> <=": "both formulas hold at the boundary",
    "accounting/pure.py | i: Vector = np.arange((count + 1) // 2, dtype=np.float64) | 2 -> 1": "losses below "
    "0 are listed too, and never above an epsilon",
    "accounting/repetition.py | far *= 2 | 2 -> 3": "another bracket of the same root",
    "mechanisms/minimise.py | if best <= self._tolerance / 4: | <= -> <": "equality of two floats; one "
    "more Newton step is as right",
    "mechanisms/minimise.py | count = 0 | 0 -> 1": "the certificate is computed at other steps; it is "
    "required at the end in any case",
    "mechanisms/minimise.py | return problem.outputs * float(problem.loss.value(np.zeros(2), ends).max()) | "
    "problem.loss.value(np.zeros(2), ends).max -> problem.loss.value(np.zeros(2), ends).min": "the losses that "
    "are vouched for have the same value at 0 at both ends",
    "mechanisms/minimiser.py | return max(2 * facts.rounding, LOOSE * facts.slope * facts.row) | 2 -> 4": "any "
    "tolerance of at least twice the rounding is right: the sensitivity has it",
    "mechanisms/second_moments.py | left = math.floor(math.log2(LARGEST_SUM / (4 * self.n * k_inf**2 * beta)))"
    " | 4 -> 3": "a grid of one bit more for some n; whether the sums fit is checked afterwards",
    "mechanisms/vertex.py | slope = problem.slope(math.inf, None, self.clip) | math.inf -> (-math.inf)": "there "
    "is one output, whose norms are all the same",
    "noise/gaussian.py | wanted = min(missing + missing // 64 + 8, CHUNK_WORDS // WORDS_PER_DRAW) | + -> -": ""
    "words are fetched in other portions, in the same order",
    "noise/gaussian.py | while fraction.bits < _COLUMN_BITS: | < -> <=": "64 digits more than are needed",
    "noise/gaussian.py | error = Decimal(10) ** (5 - context.prec) | 5 -> 4": "a smaller allowance, still "
    "ten thousand times the rounding of `Decimal.exp`",
}

# It does something else, and no quick test sees it.
LEFT: dict[str, str] = {
    "accounting/bounded_range.py | padded[:span] = 1.0 | padded[:span] = 1.0 -> pass": "deltas beyond the left "
    "end of the grid, sixteen standard deviations away, change the bound by less than 1e-14"
}
