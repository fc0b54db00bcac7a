"""Who meets whom: blocks of particles as teams of a round-robin tournament, so that no two meetings of a turn share a block.

Threads then never write to the same number, and each block adds its meetings in the order of the turns.
"""

from __future__ import annotations

from meanfield._numba import njit

__all__ = ["pair_at_table"]


@njit(inline=True)
def pair_at_table(turn, table, blocks):  # type: ignore[no-untyped-def]
    """The two blocks, the smaller one first, that meet at a table in a turn (circle method).

    There are blocks + blocks % 2 - 1 turns of (blocks + 1) // 2 tables; with an odd number of blocks one rests, which is the
    meeting whose second block is ``blocks``.
    """
    others = blocks + blocks % 2 - 1
    one = (turn + table) % others
    two = others if table == 0 else (turn - table + others) % others
    return min(one, two), max(one, two)
