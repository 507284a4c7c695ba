"""Compiled kernels of lazy scores, importing numba.

A row's residual is a line a + b share in the public share = scale / base, valid until its calendar edge.
Frequent features have their sums A_j = sum_i a_i k_ij and B_j = sum_i b_i k_ij kept in `sums`, exact 64-bit
integers, and in `facts` their LEVEL, the edge where it is DUE, their PLACE among the features sorted by
level, and a MARK of the step. Sums of rare features are added up when one is proposed.
"""

# Numba gives the kernels their types when it compiles them; `slope` and `residuals` are bound by name.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, disable-error-code="name-defined"

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit

from dpcvx.data.kernels import bind, compile_slope, compiled
from dpcvx.data.kernels.residuals import LOSSES_DIGEST, clamped, rounded
from dpcvx.losses import slopes
from dpcvx.noise.exponential_kernels import (
    KEPT,
    NO_WORDS,
    UNSURE,
    decide,
    item_of,
    items_on,
    level_of,
    total_weight,
)

LEVEL, DUE, PLACE, MARK = 0, 1, 2, 3
NEVER = -1
EDGES_PER_OCTAVE = 64  # of the calendar: about 1 % of the scale from edge to edge
ROOM_ABOVE = 0.25  # a new level lies at least this far above a weight, so that small changes leave it alone
ROOM_BELOW = 2.0  # and is lowered when it lies further than this above one
MANY = 4  # if a step changes more entries than a fourth of the features, all levels are looked at in order


# -- which features are frequent


@compiled
def column_weights(indptr, values, weights):
    """weights[j] = sum_i |k_ij|."""
    for j in range(weights.shape[0]):
        total = np.int64(0)
        for e in range(indptr[j], indptr[j + 1]):
            total += abs(np.int64(values[e]))
        weights[j] = total


@compiled
def frequent_part(indptr, indices, values, rank, frequent, starts, features, parts):
    """Write the rows' entries of frequent features, renamed by rank, and where each row starts."""
    count = 0
    for i in range(indptr.shape[0] - 1):
        starts[i] = count
        for e in range(indptr[i], indptr[i + 1]):
            j = rank[indices[e]]
            if j < frequent:
                features[count], parts[count] = j, values[e]
                count += 1
    starts[indptr.shape[0] - 1] = count


# -- calendars: doubly linked lists, one for each edge


@compiled
def link(heads, links, item, due):
    """Put an item on the list of an edge."""
    first = heads[due]
    links[item, 0], links[item, 1] = first, NEVER
    if first != NEVER:
        links[first, 1] = item
    heads[due] = item


@compiled
def unlink(heads, links, item, due):
    """Take an item off the list of an edge."""
    after, before = links[item, 0], links[item, 1]
    if after != NEVER:
        links[after, 1] = before
    if before == NEVER:
        heads[due] = after
    else:
        links[before, 0] = after


@compiled
def edge_from(edges, scale, now):
    """Last edge at or above a scale, but one that is still ahead; NEVER behind the last one."""
    if not scale >= edges[edges.shape[0] - 1]:
        return NEVER
    g = max(int(-EDGES_PER_OCTAVE * np.log2(scale)), 0)
    while g > 0 and edges[g] < scale:
        g -= 1
    while g + 1 < edges.shape[0] and edges[g + 1] >= scale:
        g += 1
    g = max(g, now + 1)
    return g if g < edges.shape[0] else NEVER


# -- rows


@compiled
def touch(indptr, indices, values, index, amount, margins, marks, mark, batch, count):
    """Move the margins of the rows that hold a feature, and note these rows; return how many are noted."""
    for e in range(indptr[index], indptr[index + 1]):
        i = indices[e]
        margins[i] += np.int64(values[e]) * amount
        if marks[i] != mark:
            marks[i] = mark
            batch[count] = i
            count += 1
    return count


@compiled
def due_rows(edges, scale, now, heads, links, dues, marks, mark, batch, count):
    """Note the rows whose edge is passed at this scale; return (last edge passed, rows noted)."""
    while now + 1 < edges.shape[0] and scale <= edges[now + 1]:
        now += 1
        i = heads[now]
        while i != NEVER:
            dues[i] = NEVER
            if marks[i] != mark:
                marks[i] = mark
                batch[count] = i
                count += 1
            i = links[i, 0]
        heads[now] = NEVER
    return now, count


def residuals(margins, targets, count, unit, parameter, limit, rho):
    """rho of `count` records, each from its own margin and target."""
    for at in range(count):
        known = targets[at] == targets[at]  # a record with a missing target adds 0
        rho[at] = rounded(slope(clamped(margins[at] * unit), targets[at], parameter), limit) if known else 0  # noqa: F821


def refresh(numbers, starts, targets, state, calendar, batch, now, clock, work):
    """Give the noted rows new lines; return (rows whose line changed, their entries of frequent features).

    A line is the chord of the row's own residual between its margin now and its margin at its next edge: both
    ends are clipped to two units inside the bound, and rounding moves a point of the chord by less than two.
    The changes are left in `batch` and `work`, row by row.
    """
    unit, parameter, limit, drift, steepness = numbers
    margins, lines = state
    edges, heads, links, dues = calendar
    scale, base = clock
    ends, two_margins, two_targets, rho = work
    count = batch.shape[0]
    for at in range(count):
        i = batch[at]
        if dues[i] != NEVER:
            unlink(heads, links, i, dues[i])
        z = abs(margins[i] * (unit * scale))
        due = NEVER
        if z > drift:
            due = edge_from(edges, scale * (1.0 - drift / z), now)
        dues[i] = due
        end = 0.0
        if due != NEVER:
            link(heads, links, i, due)
            end = edges[due]
        ends[at] = end
        two_margins[at] = margins[i]
        two_margins[count + at] = int(np.rint(margins[i] * (end / scale)))
        two_targets[at] = targets[i]
        two_targets[count + at] = targets[i]
    residuals(two_margins, two_targets, 2 * count, unit * scale, parameter, limit, rho)
    share = scale / base
    steepest = np.floor(steepness / share)
    entries = changed = 0
    for at in range(count):
        i = batch[at]
        here = rho[at]
        slant = np.rint((here - rho[count + at]) / (share - ends[at] / base))
        slant = min(max(slant, -steepest), steepest)
        a, b = int(np.rint(here - slant * share)), int(slant)
        more, bend = a - lines[i, 0], b - lines[i, 1]
        if more != 0 or bend != 0:
            lines[i, 0], lines[i, 1] = a, b
            batch[changed], two_margins[2 * changed], two_margins[2 * changed + 1] = i, more, bend
            entries += starts[i + 1] - starts[i]
            changed += 1
    return changed, entries


@compiled
def push(rows, batch, changes, sums):
    """Add the changes of lines to the sums of the rows' features."""
    starts, features, parts = rows
    for at in range(batch.shape[0]):
        more, bend = changes[2 * at], changes[2 * at + 1]
        for e in range(starts[batch[at]], starts[batch[at] + 1]):
            j, k = np.uint64(features[e]), np.int64(parts[e])
            sums[j, 0] += more * k
            sums[j, 1] += bend * k


@compiled
def push_and_note(rows, batch, changes, sums, facts, mark, touched, changed):
    """The same, and note the features; return how many are noted."""
    starts, features, parts = rows
    for at in range(batch.shape[0]):
        more, bend = changes[2 * at], changes[2 * at + 1]
        for e in range(starts[batch[at]], starts[batch[at] + 1]):
            j, k = np.uint64(features[e]), np.int64(parts[e])
            sums[j, 0] += more * k
            sums[j, 1] += bend * k
            if facts[j, MARK] != mark:
                facts[j, MARK] = mark
                touched[changed] = j
                changed += 1
    return changed


def start_lines(numbers, rows, targets, lines, work, sums):
    """Lines of all rows at theta = 0, constant, and their sums."""
    unit, parameter, limit, _, _ = numbers
    starts, features, parts = rows
    _, two_margins, _, rho = work
    count = lines.shape[0]
    two_margins[:count] = 0
    residuals(two_margins, targets, count, unit, parameter, limit, rho)
    sums[:] = 0
    for i in range(count):
        a = np.int64(rho[i])
        lines[i, 0], lines[i, 1] = a, 0
        for e in range(starts[i], starts[i + 1]):
            sums[np.uint64(features[e]), 0] += a * np.int64(parts[e])


@compiled
def rebase(factor, rows, lines, sums):
    """Hold slants in units of a smaller scale: b <- rint(b * factor), and B from the rows again."""
    starts, features, parts = rows
    sums[:, 1] = 0
    for i in range(lines.shape[0]):
        b = int(np.rint(lines[i, 1] * factor))
        lines[i, 1] = b
        if b != 0:
            for e in range(starts[i], starts[i + 1]):
                sums[np.uint64(features[e]), 1] += b * np.int64(parts[e])


# -- frequent features


@compiled
def due_features(before, now, heads, links, facts, mark, touched, changed):
    """Note the features whose edge is passed; return how many are noted."""
    for g in range(before + 1, now + 1):
        j = heads[g]
        while j != NEVER:
            facts[j, DUE] = NEVER
            if facts[j, MARK] != mark:
                facts[j, MARK] = mark
                touched[changed] = j
                changed += 1
            j = links[j, 0]
        heads[g] = NEVER
    return changed


@compiled
def place(order, start, facts, j, to, top):
    """Move a feature to a level, one swap for each level passed; return the highest level used so far."""
    level, spot = facts[j, LEVEL], facts[j, PLACE]
    while level != to:
        if level < to:
            other = start[level + 1] - 1  # the last of its level becomes the first of the next
            start[level + 1] -= 1
            level += 1
        else:
            other = start[level]  # the first of its level becomes the last of the one below
            start[level] += 1
            level -= 1
        moved = order[other]
        order[spot], order[other] = moved, j
        facts[moved, PLACE] = spot
        spot = other
    facts[j, PLACE] = spot
    facts[j, LEVEL] = to
    return max(top, to)


@compiled
def settle_level(j, calendar, now, clock, weights, sums, facts, levels, top):
    """Put one feature on a new level; return the highest level used so far."""
    edges, heads, links = calendar
    scale, base = clock
    factor, slack = weights
    A, B = float(sums[j, 0]), float(sums[j, 1])
    here, last = factor * (A + scale / base * B), factor * A
    if facts[j, DUE] != NEVER:
        unlink(heads, links, j, facts[j, DUE])
    level = max(1, int(np.ceil(abs(here) + ROOM_ABOVE + slack)))
    due = NEVER
    while abs(last) > level - slack:
        # The line from here to `last` leaves the level somewhere; look for an edge before that.
        limit = level - slack if last > 0 else slack - level
        due = edge_from(edges, scale * (limit - last) / (here - last), now)
        if due != NEVER and abs(factor * (A + edges[due] / base * B)) <= level - slack:
            break
        due = NEVER
        level += 1
    facts[j, DUE] = due
    if due != NEVER:
        link(heads, links, j, due)
    return place(levels[0], levels[1], facts, j, level, top)


@compiled
def settle_levels(touched, changed, everything, calendar, now, clock, weights, features, levels, top):
    """Put features on levels that bound them until they are due; return the highest level that is not empty.

    A log-weight is affine in the scale, so a level that bounds it now and at a later edge bounds it between.
    """
    edges = calendar[0]
    scale, base = clock
    factor, slack = weights
    sums, facts = features
    share, per_base = scale / base, 1.0 / base  # base is a power of two: both are exact
    for at in range(facts.shape[0] if everything else changed):
        j = np.int64(at) if everything else np.int64(touched[at])
        A, B = float(sums[j, 0]), float(sums[j, 1])
        level, due = facts[j, LEVEL], facts[j, DUE]
        end = edges[due] * per_base if due != NEVER else 0.0
        here, there = abs(factor * (A + share * B)), abs(factor * (A + end * B))
        if max(here, there) > level - slack or (level > 1 and here < level - ROOM_BELOW):
            top = settle_level(j, calendar, now, clock, weights, sums, facts, levels, top)
    while top > 0 and levels[1][top + 1] == levels[1][top]:
        top -= 1
    return top


# -- one step, one draw


def advance(
    numbers, rows, targets, state, row_calendar, noted, work, features, calendar, levels, touched, clock
):
    """Bring rows, sums and levels to a new scale; return (last edge passed, highest level in use)."""
    edges, row_heads, row_links, dues = row_calendar
    row_marks, batch, count = noted
    sums, facts = features
    list_of_touched, changed = touched
    scale, base, factor, slack, mark, before, top, everything = clock
    now, count = due_rows(edges, scale, before, row_heads, row_links, dues, row_marks, mark, batch, count)
    if count:
        rest = (row_calendar, batch[:count], now, (scale, base), work)
        count, entries = refresh(numbers, rows[0], targets, state, *rest)
        if entries * MANY > facts.shape[0]:
            push(rows, batch[:count], work[1], sums)
            everything = True
        else:
            changed = push_and_note(rows, batch[:count], work[1], sums, facts, mark, list_of_touched, changed)
    changed = due_features(before, now, calendar[0], calendar[1], facts, mark, list_of_touched, changed)
    calendar_and_edges, weights = (edges, calendar[0], calendar[1]), (factor, slack)
    top = settle_levels(
        list_of_touched,
        changed,
        everything,
        calendar_and_edges,
        now,
        (scale, base),
        weights,
        features,
        levels,
        top,
    )
    return now, top


@compiled
def sums_of(item, columns, names, lines, sums):
    """(A, B) of a feature by its new name: kept, or added up from its column."""
    if item < sums.shape[0]:
        return sums[item, 0], sums[item, 1]
    indptr, indices, values = columns
    A, B = np.int64(0), np.int64(0)
    for e in range(indptr[names[item]], indptr[names[item] + 1]):
        i, k = np.uint64(indices[e]), np.int64(values[e])
        A += lines[i, 0] * k
        B += lines[i, 1] * k
    return A, B


@compiled
def draw(line, columns, names, lines, sums, order, start, loose, words, position):
    """Propose until a feature is kept, as `selection_kernels.draw` does; the feature goes by its new name."""
    factor, share = line
    total = total_weight(start, loose)
    while position < words.shape[0]:
        first = position
        at = level_of(start, loose, total, words[position])
        if at < 0:
            return UNSURE, first, 0, 1
        position, offset, sign = item_of(words, position + 1, items_on(start, loose, at))
        if offset < 0 or position == words.shape[0]:
            return NO_WORDS, first, 0, 1
        listed = start[at + 1] - start[at]
        item = np.int64(order[start[at] + offset]) if offset < listed else sums.shape[0] + offset - listed
        A, B = sums_of(item, columns, names, lines, sums)
        kept = decide(at - sign * (factor * (float(A) + share * float(B))), words[position])
        position += 1
        if kept == 1:
            return KEPT, position, item, sign
        if kept < 0:
            return UNSURE, first, 0, 1
    return NO_WORDS, position, 0, 1


@cache
def kernels_of(slope: Callable[..., Any]) -> tuple[Any, Any]:
    """Return `start_lines` and `advance`, compiled for one slope.

    Kernels of the package's own losses are kept on disk under names with the digest of the losses' source.
    """
    own = slope.__module__ == slopes.__name__
    bound = njit(error_model="numpy")(bind(residuals, slope=compile_slope(slope)))
    rest = {"residuals": bound, "refresh": njit(error_model="numpy")(bind(refresh, residuals=bound))}
    made = []
    for function in (bind(start_lines, **rest), bind(advance, **rest)):
        if own:
            function.__qualname__ = f"{function.__name__}_{slope.__name__}_{LOSSES_DIGEST}"
        made.append(njit(cache=own, nogil=True, error_model="numpy")(function))
    return made[0], made[1]
