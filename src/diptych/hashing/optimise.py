"""Algorithm A.1: drop bits for as long as nearest neighbours stay what they are.

Knows packed bits. Two readings of the paper's text: `per-row` (ours), in which every code keeps its own set of nearest
codes, ties included; and `global`, in which the set of closest pairs is kept. Either is greedy in a seeded order and
starts again from the first bit after each removal, as written.

Nothing is recomputed to get there. With N_i the nearest set of row i, at distance m_i, and S_i the codes at m_i + 1,
dropping a bit leaves N_i unchanged if and only if the bit differs from code i's on all of N_i, or on none of N_i and
none of S_i. Only removals touch the K×K matrix, and rows whose S must be empty for a while wait. A row that objects
to a bit goes on doing so until its S loses members, and S only loses members when m_i falls; starting again therefore
means asking few bits again. The global reading is the same with one row, that of all pairs.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled, compiled_inline
from diptych.hashing.binarise import BinaryCodebook

Reading = Literal["per-row", "global"]

Words = NDArray[np.uint64]


def optimise(binary: BinaryCodebook, *, reading: Reading = "per-row", seed: int = 0) -> BinaryCodebook:
    """Remove bits by algorithm A.1, looking at them in an order drawn from `seed`."""
    order = np.random.default_rng(seed).permutation(binary.bits)
    if binary.distinct < 2:
        return binary.keep(order[:0])
    remove = remove_per_row if reading == "per-row" else remove_global
    removed = remove(binary.columns[order], binary.distances())
    return binary.keep(np.sort(order[~removed]))


@compiled_inline
def ones(word: np.uint64) -> Any:
    """How many bits of a word are set."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


@compiled_inline
def bit_of(column: Words, code: int) -> Any:
    """The bit of one code."""
    return (column[code // 64] >> np.uint64(code % 64)) & np.uint64(1)


@compiled
def remove_per_row(columns: Words, distances: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which bits the per-row reading removes, looking at them in the order given."""
    count = len(distances)
    nearest, second = np.zeros((count, columns.shape[1]), np.uint64), np.zeros((count, columns.shape[1]), np.uint64)
    smallest = np.empty(count, np.int32)
    for i in range(count):
        distances[i, i] = 2**30  # no code is its own neighbour
        smallest[i] = distances[i].min()
        mark(distances[i], smallest[i], nearest[i])
        mark(distances[i], smallest[i] + 1, second[i])
    removed = np.zeros(len(columns), np.bool_)
    waiting, objector, asked = np.empty((3, len(columns)), np.int64)  # bits that had to stay, in their order
    shrunk = np.zeros(count, np.int64)
    loose, pending, n_pending = np.zeros(count, np.bool_), np.zeros(count, np.uint64), 0
    n_waiting, fresh, round_ = 0, 0, 0
    while True:
        round_ += 1
        strict = rows_that_may_object(nearest, second)
        chosen = -1
        for w in range(n_waiting):
            if shrunk[objector[w]] < asked[w]:
                continue
            asked[w] = round_
            if not allows(columns[waiting[w]], objector[w], nearest, second):
                continue
            objector[w] = find_objector(columns[waiting[w]], nearest, second, strict)
            if objector[w] < 0:
                chosen = waiting[w]
                waiting[w : n_waiting - 1] = waiting[w + 1 : n_waiting].copy()
                objector[w : n_waiting - 1] = objector[w + 1 : n_waiting].copy()
                asked[w : n_waiting - 1] = asked[w + 1 : n_waiting].copy()
                n_waiting -= 1
                break
        while chosen < 0 and fresh < len(columns):
            row = find_objector(columns[fresh], nearest, second, strict)
            if row < 0:
                chosen = fresh
            else:
                waiting[n_waiting], objector[n_waiting], asked[n_waiting] = fresh, row, round_
                n_waiting += 1
            fresh += 1
        if chosen < 0:
            return removed
        removed[chosen] = True
        if n_pending == 64 or round_ == 1:
            settle(distances, smallest, nearest, loose, pending)
            n_pending = 0
        for row in drop(columns[chosen], distances, smallest, nearest, second, loose):
            shrunk[row] = round_
        for code in range(count):
            pending[code] |= bit_of(columns[chosen], code) << np.uint64(n_pending)
        n_pending += 1


@compiled
def allows(column: Words, row: int, nearest: Words, second: Words) -> bool:
    """Whether dropping a bit leaves the nearest set of one row as it is."""
    flip = differing(column, row)
    some, all_, further = False, True, False
    for w in range(len(column)):
        differs = column[w] ^ flip
        some |= (differs & nearest[row, w]) != 0
        all_ &= (~differs & nearest[row, w]) == 0
        further |= (differs & second[row, w]) != 0
    return all_ or not (some or further)


@compiled
def rows_that_may_object(nearest: Words, second: Words) -> NDArray[np.intp]:
    """Rows with a code one step further than the nearest, or with several nearest codes; others allow any bit."""
    strict = np.zeros(len(nearest), np.bool_)
    for row in range(len(nearest)):
        members = 0
        for w in range(nearest.shape[1]):
            members += ones(nearest[row, w])
            strict[row] |= second[row, w] != 0
        strict[row] |= members > 1
    return np.flatnonzero(strict)


@compiled
def find_objector(column: Words, nearest: Words, second: Words, strict: NDArray[np.intp]) -> int:
    """A row whose nearest set would change if the bit were dropped, or -1."""
    for row in strict:
        if not allows(column, row, nearest, second):
            return int(row)
    return -1


@compiled
def drop(
    column: Words,
    distances: NDArray[np.int32],
    smallest: NDArray[np.int32],
    nearest: Words,
    second: Words,
    loose: NDArray[np.bool_],
) -> NDArray[np.intp]:
    """Take a bit out of the distances, bring S up to date, and tell in which rows S may have lost members."""
    count = len(distances)
    values, lost = np.empty(count, np.int32), np.zeros(count, np.bool_)
    for j in range(count):
        values[j] = np.int32(bit_of(column, j))
    for i in range(count):
        flip = differing(column, i)
        lost[i] = True
        for w in range(len(column)):
            lost[i] &= (~(column[w] ^ flip) & nearest[i, w]) == 0
        if lost[i]:
            smallest[i] -= 1
            for w in range(len(column)):
                second[i, w] &= column[w] ^ flip
        if loose[i]:
            continue
        row, own, wanted = distances[i], values[i], np.int32(smallest[i] + 1)
        entered = np.int32(0)
        for j in range(count):
            differs = values[j] ^ own
            distance = np.int32(row[j] - differs)
            row[j] = distance
            entered += np.int32(distance == wanted) & differs
        if entered and not lost[i]:
            mark(row, wanted, second[i])
    return np.flatnonzero(lost)


@compiled
def settle(
    distances: NDArray[np.int32],
    smallest: NDArray[np.int32],
    nearest: Words,
    loose: NDArray[np.bool_],
    pending: Words,
) -> None:
    """Bring loose rows up to date, 64 bits at once, and find the rows that may stay loose for the next 64.

    In a loose row no code can come within one step of the nearest before then: S is empty whatever is dropped.
    """
    count = len(distances)
    for i in range(count):
        row = distances[i]
        if loose[i]:
            for j in range(count):
                row[j] -= np.int32(ones(pending[i] ^ pending[j]))
        gap = np.int32(2**30)
        for j in range(count):
            if not (nearest[i, j // 64] >> np.uint64(j % 64)) & np.uint64(1):
                gap = min(gap, np.int32(row[j] - smallest[i]))
        loose[i] = gap > 66
    pending[:] = 0


@compiled
def mark(row: NDArray[np.int32], wanted: int | np.int32, marks: Words) -> None:
    """Set the bits of all codes at one distance."""
    for j in range(len(row)):
        if row[j] == wanted:
            marks[j // 64] |= np.uint64(1) << np.uint64(j % 64)


@compiled
def differing(column: Words, row: int) -> np.uint64:
    """What to flip a bit's words with so that ones mean "differs from this code"."""
    flip: np.uint64 = np.uint64(0) - bit_of(column, row)
    return flip


@compiled
def remove_global(columns: Words, distances: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which bits the global reading removes, looking at them in the order given."""
    count = len(distances)
    smallest = np.int32(2**30)
    for i in range(count):
        distances[i, i] = 2**30
        smallest = min(smallest, distances[i].min())
    nearest, second = pairs_at(distances, smallest), pairs_at(distances, smallest + 1)
    removed = np.zeros(len(columns), np.bool_)
    waiting = np.empty(len(columns), np.int64)  # bits that had to stay, in their order
    n_waiting, at, fresh = 0, 0, 0
    while True:
        chosen = -1
        while chosen < 0 and at < n_waiting:
            if keeps_pairs(columns[waiting[at]], nearest, second):
                chosen = waiting[at]
                waiting[at : n_waiting - 1] = waiting[at + 1 : n_waiting].copy()
                n_waiting -= 1
            else:
                at += 1
        while chosen < 0 and fresh < len(columns):
            if keeps_pairs(columns[fresh], nearest, second):
                chosen = fresh
            else:
                waiting[n_waiting] = fresh
                n_waiting += 1
                at += 1
            fresh += 1
        if chosen < 0:
            return removed
        removed[chosen] = True
        subtract(columns[chosen], distances)
        if pairs_split(columns[chosen], nearest):
            smallest -= np.int32(1)
            at = 0  # otherwise the smallest distance stands, and earlier bits go on having to stay
        second = pairs_at(distances, smallest + 1)


@compiled
def keeps_pairs(column: Words, nearest: NDArray[np.int64], second: NDArray[np.int64]) -> bool:
    """Whether dropping a bit leaves the set of closest pairs as it is."""
    near = pairs_split(column, nearest)
    return near == len(nearest) or (near == 0 and pairs_split(column, second) == 0)


@compiled
def subtract(column: Words, distances: NDArray[np.int32]) -> None:
    """Take a bit out of all distances."""
    for i in range(len(distances)):
        flip = differing(column, i)
        for j in range(len(distances)):
            distances[i, j] -= np.int32(((column[j // 64] ^ flip) >> np.uint64(j % 64)) & np.uint64(1))


@compiled
def pairs_at(distances: NDArray[np.int32], wanted: int | np.int32) -> NDArray[np.int64]:
    """Pairs i < j at one distance, `[n, 2]`."""
    found = [(i, j) for i in range(len(distances)) for j in range(i) if distances[i, j] == wanted]
    pairs = np.empty((len(found), 2), np.int64)
    for n in range(len(found)):
        pairs[n, 0], pairs[n, 1] = found[n]
    return pairs


@compiled
def pairs_split(column: Words, pairs: NDArray[np.int64]) -> int:
    """On how many of the pairs a bit differs."""
    split = 0
    for n in range(len(pairs)):
        i, j = pairs[n]
        split += bit_of(column, i) != bit_of(column, j)
    return split
