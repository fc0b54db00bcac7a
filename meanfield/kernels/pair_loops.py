"""Generated pair loops: all pairs between two blocks of particles, both ways at once, for one weight and dimension.

The text below is the source of the loops; ``expand`` repeats its lines. A line with ``$u`` is repeated for the four
targets of a sweep, one with ``$a`` for every component, ``SUM$a{...}`` is a sum inside a line, and ``WEIGHTS`` stands for
the lines of ``pair_weights``. What makes the loops fast, measured on the logarithm in the plane with 10,000 particles
on one core, in billions of ordered pairs a second (a plain loop over (particle, component) with ``if i != j``: 0.32):

- components in arrays of their own and no branch: 1.47;
- four targets a sweep, which share one division (``pair_weights._inverse``): 2.6;
- 512-bit registers (``wide_vectors``): 3.4;
- Newton's third law, so that each pair is met once: 5.3.
"""

from __future__ import annotations

import functools
import math
import re
from typing import Any

import numpy as np

from meanfield._numba import bits_to_float, float_to_bits, multiply_add, polynomial, wide_vectors
from meanfield._tasks import kernel
from meanfield.kernels.pair_weights import POLYNOMIALS, Weight

__all__ = ["FLAT", "LANES", "NAMES", "energies_of_rows", "expand", "forces_across_runs", "forces_between_blocks"]

TARGETS = 4
FLAT = 4  # components that are unrolled
STRETCH = 512
LANES = 32  # runs side by side
WIDTH = 8  # float64 in a 512-bit register; blocks start at multiples of it
NAMES = {"np": np, "math": math, "rint": np.rint, "float_to_bits": float_to_bits, "bits_to_float": bits_to_float,
         "multiply_add": multiply_add, "polynomial": polynomial, "wide_vectors": wide_vectors, **POLYNOMIALS,
         "WIDTH": WIDTH, "STRETCH": STRETCH, "LANES": LANES}

_FORCES = """
def {name}(x, f, i0, i1, j0, j1, power, soft, floor):
    wide_vectors()
    nobody = np.zeros(({dim}, WIDTH))
    for i in range(i0, i1, 4):
        k$u = min(i + $u, i1 - 1)
        x$u$a = x[$a, k$u]
        s$u$a = 0.0
        # A block with itself: the eight that the targets belong to are met from both sides (a particle itself has d = 0),
        # then all later ones. Fewer than four targets are left only at the end, where nobody is later.
        low = i - (i - i0) % WIDTH if i0 == j0 else j0 - WIDTH
        for later in range(0 if i0 == j0 else 1, 2):
            start, stop = (low + WIDTH, j1) if later else (low, min(low + WIDTH, j1))
            row$a = x[$a, start:stop]
            push$a = f[$a, start:stop] if later else nobody[$a]
            for j in range(stop - start):
                d$u$a = x$u$a - row$a[j]
                q$u = soft + SUM$a{d$u$a * d$u$a}
                q$u = q$u if q$u > floor else floor
                WEIGHTS
                s$u$a = multiply_add(w$u, d$u$a, s$u$a)
                push$a[j] = multiply_add(-w0, d0$a, multiply_add(-w1, d1$a, push$a[j]))
                push$a[j] = multiply_add(-w2, d2$a, multiply_add(-w3, d3$a, push$a[j]))
        for u in range(min(4, i1 - i)):
            f[$a, i + u] += (s0$a, s1$a, s2$a, s3$a)[u]
"""

# Few particles, many runs: eight runs side by side in a register instead of eight partners. z holds (particle, positions
# then forces, component, run) with LANES runs in a row, of which the first ``lanes`` are computed; the four targets of a
# sweep meet all later particles, also one another, where ``live`` leaves out the pairs that are not later.
_FORCES_ACROSS = """
def {name}(z, n, lanes, power, soft, floor):
    wide_vectors()
    size = {dim} * LANES
    work = np.empty(8 * {dim} * LANES)
    for i in range(0, n, 4):
        for u in range(4):
            k = min(i + u, n - 1)
            for r in range(size):
                work[u * size + r] = 0.0
                work[(4 + u) * size + r] = z[2 * k * size + r]
        for k in range(i + 1, n):
            live$u = 1.0 if i + $u < k else 0.0
            row = z[2 * k * size:2 * (k + 1) * size]
            for r in range(lanes):
                d$u$a = work[((4 + $u) * {dim} + $a) * LANES + r] - row[$a * LANES + r]
                q$u = soft + SUM$a{d$u$a * d$u$a}
                q$u = q$u if q$u > floor else floor
                WEIGHTS
                w$u = live$u * w$u
                work[($u * {dim} + $a) * LANES + r] += w$u * d$u$a
                push$a = multiply_add(-w0, d0$a, multiply_add(-w1, d1$a, row[({dim} + $a) * LANES + r]))
                row[({dim} + $a) * LANES + r] = multiply_add(-w2, d2$a, multiply_add(-w3, d3$a, push$a))
        for u in range(min(4, n - i)):
            for r in range(size):
                z[(2 * (i + u) + 1) * size + r] += work[u * size + r]
"""

# More than four components do not fit into registers: squared distances of four targets to a stretch of partners first,
# then their weights, then the forces, component by component. Large clouds of many components: ``product_pairs``.
_SQUARED_DISTANCES = """
r$u = work[$u, :stop - start]
for j in range(stop - start):
    r$u[j] = soft
for a in range(0, x.shape[0], 4):
    x$u$c = x[a + $c, k$u]
    row$c = x[a + $c, start:stop]
    for j in range(stop - start):
        d$u$c = x$u$c - row$c[j]
        r$u[j] += SUM$c{d$u$c * d$u$c}
"""

_FORCES_TALL = """
def {name}(x, f, i0, i1, j0, j1, power, soft, floor):
    wide_vectors()
    nobody = np.zeros((x.shape[0], WIDTH))
    work = np.empty((4, STRETCH))
    for i in range(i0, i1, 4):
        k$u = min(i + $u, i1 - 1)
        low = i - (i - i0) % WIDTH if i0 == j0 else j0 - WIDTH
        for later in range(0 if i0 == j0 else 1, 2):
            first, last = (low + WIDTH, j1) if later else (low, min(low + WIDTH, j1))
            for start in range(first, last, STRETCH):
                stop = min(start + STRETCH, last)
                SQUARED_DISTANCES
                for j in range(stop - start):
                    q$u = r$u[j] if r$u[j] > floor else floor
                    WEIGHTS
                    r$u[j] = w$u
                for u in range(i1 - i, 4):
                    work[u] = 0.0
                for a in range(0, x.shape[0], 2):
                    x$u$b = x[a + $b, k$u]
                    row$b = x[a + $b, start:stop]
                    push$b = f[a + $b, start:stop] if later else nobody[a + $b]
                    s$u$b = 0.0
                    for j in range(stop - start):
                        d$u$b = x$u$b - row$b[j]
                        s$u$b = multiply_add(r$u[j], d$u$b, s$u$b)
                        push$b[j] = multiply_add(-r0[j], d0$b, multiply_add(-r1[j], d1$b, push$b[j]))
                        push$b[j] = multiply_add(-r2[j], d2$b, multiply_add(-r3[j], d3$b, push$b[j]))
                    for u in range(min(4, i1 - i)):
                        f[a + $b, i + u] += (s0$b, s1$b, s2$b, s3$b)[u]
"""

# Energies of four targets with all earlier particles, and of the pairs among the four one by one.
_ENERGIES = """
def {name}(x, i0, i1, power, soft, floor, rows, closest):
    wide_vectors()
    nearest = np.inf
    for i in range(i0, i1, 4):
        k$u = min(i + $u, i1 - 1)
        x$u$a = x[$a, k$u]
        row$a = x[$a, :i]
        total0 = total1 = total2 = total3 = 0.0
        for j in range(i if i + 3 < i1 else 0):
            q$u = soft + SUM$a{(x$u$a - row$a[j]) * (x$u$a - row$a[j])}
            close = min(min(q0, q1), min(q2, q3))
            nearest = close if close < nearest else nearest
            q$u = q$u if q$u > floor else floor
            WEIGHTS
            total$u += w$u
        rest = (total0 + total1) + (total2 + total3)
        for k in range(i, min(i + 4, i1)):
            for j in range(i if i + 3 < i1 else 0, k):
                q0 = soft + SUM$a{(x[$a, k] - x[$a, j]) * (x[$a, k] - x[$a, j])}
                nearest = q0 if q0 < nearest else nearest
                q0 = q0 if q0 > floor else floor
                q1 = q2 = q3 = 1.0
                WEIGHTS
                rest += w0
            rows[k] = rest
            rest = 0.0
    closest[0] = nearest
"""

_ENERGIES_TALL = """
def {name}(x, i0, i1, power, soft, floor, rows, closest):
    wide_vectors()
    nearest = np.inf
    work = np.empty((4, STRETCH))
    for i in range(i0, i1, 4):
        k$u = min(i + $u, i1 - 1)
        rest = 0.0
        # the stretch with the four targets themselves is the last one
        for start in range(0, min(i + 4, i1), STRETCH):
            stop = min(start + STRETCH, min(i + 4, i1))
            SQUARED_DISTANCES
            for u in range(4):
                for j in range(stop - start):
                    # not a pair, or a pair from its other side
                    if i + u >= i1 or start + j >= i + u:
                        work[u, j] = -1.0
            for j in range(stop - start):
                q$u = r$u[j]
                on$u = q$u >= 0.0
                nearest = q$u if on$u and q$u < nearest else nearest
                q$u = q$u if q$u > floor else floor
                q$u = q$u if on$u else 1.0
                WEIGHTS
                r$u[j] = w$u if on$u or joint else 0.0
            for j in range(stop - start):
                rest += SUM$u{r$u[j]}
        for k in range(i, min(i + 4, i1)):
            rows[k] = rest
            rest = 0.0
    closest[0] = nearest
"""


def expand(template: str, parts: dict[str, str], marks: dict[str, int]) -> str:
    """The template with its parts filled in and its marked lines repeated (see the module's docstring)."""
    lines = template.strip("\n").splitlines()
    for part, text in parts.items():
        filled: list[str] = []
        for line in lines:
            indent = line[: len(line) - len(line.lstrip())]
            filled += [indent + piece for piece in text.strip("\n").splitlines()] if line.strip() == part else [line]
        lines = filled

    def total(match: re.Match[str]) -> str:
        mark, body = match.groups()
        return "(" + " + ".join(body.replace("$" + mark, str(i)) for i in range(marks[mark])) + ")"

    done: list[str] = []
    for line in lines:
        copies = [re.sub(r"SUM\$(\w)\{([^{}]*)\}", total, line)]
        for mark, count in marks.items():
            copies = [copy.replace("$" + mark, str(i)) for copy in copies
                      for i in range(count if "$" + mark in copy else 1)]
        done += copies
    return "\n".join(done) + "\n"


@functools.cache
def _build(kind: str, weight: Weight, dim: int, safe: bool) -> Any:
    template, tall, arguments = _KINDS[kind]
    dim = min(dim, FLAT + 1)
    name = f"{kind}_{weight.name}_{dim if dim <= FLAT else 'any'}d{'_safe' if safe else ''}"
    source = (template if dim <= FLAT else tall).replace("{name}", name).replace("{dim}", str(dim))
    source = expand(source, {"SQUARED_DISTANCES": _SQUARED_DISTANCES, "WEIGHTS": weight.safe if safe else weight.fast},
                    {"u": TARGETS, "a": dim, "b": 2, "c": 4})
    return kernel(name, source, NAMES | {"joint": weight.joint and not safe}, arguments)


_COLUMNS = "float64[:, ::1]"
_KINDS = {
    "across": (_FORCES_ACROSS, "", "float64[::1], int64, int64, float64, float64, float64"),
    "forces": (_FORCES, _FORCES_TALL, f"{_COLUMNS}, {_COLUMNS}, int64, int64, int64, int64, float64, float64, float64"),
    "energies": (_ENERGIES, _ENERGIES_TALL,
                 f"{_COLUMNS}, int64, int64, float64, float64, float64, float64[::1], float64[::1]"),
}


def forces_between_blocks(weight: Weight, dim: int, safe: bool) -> Any:
    """Kernel (x, f, i0, i1, j0, j1, power, soft, floor): add to f the forces between the particles i0:i1 and j0:j1.

    x and f are (component, particle), for dim > FLAT padded with zeros to a multiple of four components. The blocks are
    the same, or the first has a whole number of fours and does not meet the second; all start at multiples of eight. A
    pair at q = max(soft + d^2, floor) feels w(q) d.
    """
    return _build("forces", weight, dim, safe)


def forces_across_runs(weight: Weight, dim: int) -> Any:
    """Kernel (z, n, lanes, power, soft, floor): the forces of LANES runs at once, for dim <= FLAT and ordinary distances.

    z is (particle, 2, component, LANES) in a row: positions, and forces to be added to; ``lanes`` is a multiple of eight.
    """
    return _build("across", weight, dim, False)


def energies_of_rows(weight: Weight, dim: int, safe: bool) -> Any:
    """Kernel (x, i0, i1, power, soft, floor, rows, closest): w(q) summed over the pairs k in i0:i1, l < k.

    The sum of rows[i0:i1] is that sum, row by row or four rows together; closest[0] is the smallest q.
    """
    return _build("energies", weight, dim, safe)
