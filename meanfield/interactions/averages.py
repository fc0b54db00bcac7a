"""Exact averages of pair energies: over two equal cells of a line or a plane, and over spheres.

``double_averages`` is what convolutions on equal cells are made of, ``sphere_average`` what balls are reduced to radii with.
A kernel may have closed forms: ``Interaction.corner_moments`` and ``Interaction.sphere_average``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import digamma, gamma, hyp2f1, rgamma

from meanfield._checks import Array

if TYPE_CHECKING:
    from meanfield.interactions.base import Interaction

__all__ = ["double_averages", "gauss", "graded", "graded_sphere_average", "power_corner", "power_sphere_average"]

_NEAR = 8  # cells (of the longer side) up to which a pair counts as near
_NEAR_POINTS, _FAR_POINTS = 16, 5  # beyond 8 cells the nearest singularity is 17 half cells away: 34^-10 = 5e-16
_TERMS = 56  # of power series at arguments up to 1/2
_VALUES = 2**18  # of the kernel at once
Energy = Callable[..., Array]


def gauss(points: int, panels: int = 1) -> tuple[Array, Array]:
    """Nodes and weights of a Gauss rule on [0, 1], in equal panels."""
    return _composite(np.linspace(0.0, 1.0, panels + 1), points)


def graded(points: int, ratio: float, panels: int) -> tuple[Array, Array]:
    """The same in panels [ratio^(j+1), ratio^j], j < ``panels``, and a last one that ends at the singular point 0."""
    return _composite(np.concatenate([[0.0], ratio ** np.arange(panels, -1.0, -1.0)]), points)


def _composite(edges: Array, points: int) -> tuple[Array, Array]:
    """Nodes and weights of Gauss rules between the edges."""
    node, weight = np.polynomial.legendre.leggauss(points)
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (node + 1)).ravel(), (half * weight).ravel()


def _tents(node: Array, weight: Array) -> Array:
    """Weights (node, 2) of the moments against 1 - u and u: the two flanks of the tent of a double average."""
    return np.stack([weight * (1 - node), weight * node], axis=1)


def double_averages(kernel: Interaction, widths: tuple[float, ...], counts: tuple[int, ...],
                    periodic: bool = False) -> Array:
    """The double averages of g over two cells of those ``widths`` (one or two axes) at every offset k,

        (1 / |cell|^2) int_cell int_cell+k g(x - y) dx dy = int prod_a (1 - |t_a|) g(h (k + t)) dt over [-1, 1]^dim,

    at offsets -(count - 1) .. count - 1 along each axis; ``periodic``: 0 .. count - 1, at the displacements to the nearest
    image of a torus of ``count`` cells, its kinks taken as they are.

    The unit squares of offsets each have four moments against the flanks of the tent. Those that touch the singularity
    take closed forms or panels graded towards it in polar form (Duffy 1982), those within 8 cells Gauss rules of 16 points
    a side, all others 5: exact to round-off for Riesz kernels, and for others that vary no faster than on a cell's width.
    """
    dim = len(widths)
    signs = [(1.0,) * dim] if kernel.radial else list(itertools.product((1.0, -1.0), repeat=dim))
    cells = tuple((m + 1) // 2 if periodic else m for m in counts)
    periods = tuple(m if periodic else 0 for m in counts)
    # moments of the squares -n .. n - 1 along each axis: a mirrored square swaps its two flanks
    moments = np.empty((2,) * dim + tuple(2 * n for n in cells))
    for sign in itertools.product((1.0, -1.0), repeat=dim):
        if sign in signs:
            block = _moments(kernel, widths, cells, periods, sign)
        flipped = tuple(a for a in range(dim) if sign[a] < 0)
        place = tuple(slice(0, n) if s < 0 else slice(n, 2 * n) for s, n in zip(sign, cells, strict=True))
        moments[(slice(None),) * dim + place] = np.flip(block, flipped + tuple(a + dim for a in flipped))
    axis = dim - 1  # where the first remaining axis of cells stands, behind the remaining axes of flanks
    for m in counts:
        falling, rising = moments[0], moments[1]
        if periodic:
            # squares -(m // 2) .. (m - 1) // 2 are one turn; the others repeat them
            last = falling.shape[axis]
            falling, rising = (np.take(part, np.arange(last - m, last), axis) for part in (falling, rising))
            falling, rising = (np.roll(part, -(m // 2), axis) for part in (falling, rising))
            moments = falling + np.roll(rising, 1, axis)
        else:
            n = falling.shape[axis]
            moments = np.take(falling, np.arange(1, n), axis) + np.take(rising, np.arange(n - 1), axis)
    return moments


def _moments(kernel: Interaction, widths: tuple[float, ...], cells: tuple[int, ...], periods: tuple[int, ...],
             sign: tuple[float, ...]) -> Array:
    """int over the unit square at each cell of g(sign * h x) against the flanks 1 - u and u of each axis, u = x - cell;
    shape (2, .., 2, *cells)."""
    dim = len(widths)

    def energy(*places: Array) -> Array:
        """g at offsets x in cells, at their nearest images."""
        steps = [s * h * (x - m * np.rint(x / m) if m else x)
                 for s, h, x, m in zip(sign, widths, places, periods, strict=True)]
        if dim == 1 and kernel.radial:
            return kernel.value(np.abs(steps[0]))
        if kernel.radial:
            return kernel.value(np.sqrt(np.square(steps[0]) + np.square(steps[1])))
        return kernel.energy(np.stack(np.broadcast_arrays(*steps), axis=-1))

    # the kink of the nearest image is at a cell's middle if their number is odd: two panels
    halves = [2 if m % 2 else 1 for m in periods]
    far = [gauss(12 if dim == 1 else _FAR_POINTS, p) for p in halves]
    near = [gauss(_NEAR_POINTS, p * math.ceil(h / min(widths))) for p, h in zip(halves, widths, strict=True)]
    moments = _tensor(energy, cells, far)
    block = tuple(min(n, math.ceil(_NEAR * max(widths) / h)) for n, h in zip(cells, widths, strict=True))
    flanks = (slice(None),) * dim
    moments[flanks + tuple(slice(n) for n in block)] = _tensor(energy, block, near)
    closed = kernel.corner_moments(widths)
    moments[flanks + (0,) * dim] = _corner(energy, widths) if closed is None else closed
    return moments


def _tensor(energy: Energy, cells: tuple[int, ...], rules: list[tuple[Array, Array]]) -> Array:
    """The moments of all cells by a product rule."""
    flanks = [_tents(*rule) for rule in rules]
    places = [np.arange(n)[:, None] + node for n, (node, _) in zip(cells, rules, strict=True)]
    if len(cells) == 1:
        return np.asarray((energy(places[0]) @ flanks[0]).T)
    out = np.empty((2, 2, *cells))
    rows = max(1, _VALUES // (places[0].shape[1] * places[1].size))
    for first in range(0, cells[0], rows):
        x = places[0][first:first + rows]
        values = energy(x[:, :, None, None], places[1]) @ flanks[1]  # (cell, node, cell, flank)
        out[:, :, first:first + rows] = np.einsum("iajq,ap->pqij", values, flanks[0], optimize=True)
    return out


def _corner(energy: Energy, widths: tuple[float, ...]) -> Array:
    """The moments of the cell at the origin, on panels graded towards it (in the plane along rays: the Jacobian is u)."""
    u, weight = graded(20, 0.25, 240)  # the part below 2^-480 is nothing, unless g is within 0.05 of not integrable
    if len(widths) == 1:
        return np.asarray(energy(u) @ _tents(u, weight))
    v, share = _rays(widths)
    moments = np.zeros((2, 2))
    for turned in (False, True):
        x, y = u[:, None], u[:, None] * v
        x, y = (y, x) if turned else (x, y)
        values = energy(x, y) * (u * weight)[:, None] * share
        for p, q in itertools.product((0, 1), repeat=2):
            moments[p, q] += np.sum(values * (x if p else 1 - x) * (y if q else 1 - y))
    return moments


def _rays(widths: tuple[float, ...]) -> tuple[Array, Array]:
    """A rule for slopes v in [0, 1] that resolves h1^2 + h2^2 v^2 for cells of any aspect."""
    return graded(20, 0.5, math.ceil(math.log2(max(widths) / min(widths))) + 1)


def power_corner(s: float, widths: tuple[float, ...]) -> Array:
    """The moments of the cell at the origin of r^-s, or of -log r for s = 0: exact along rays, s < dim."""
    dim = len(widths)

    def radial(n: Any) -> Any:  # int_0^1 u^(n + dim - 1) u^-s du, or that of -log u
        return 1.0 / (n + dim - s) if s else 1.0 / (n + dim) ** 2

    if dim == 1:
        monomials = radial(np.arange(2.0))
        if s:
            monomials = monomials * widths[0] ** -s
        else:
            monomials = monomials - math.log(widths[0]) / (1.0 + np.arange(2.0))
        return np.array([monomials[0] - monomials[1], monomials[1]])
    v, share = _rays(widths)
    m = np.zeros((2, 2))  # of x^p y^q
    for turned, (h, other) in enumerate((widths, widths[::-1])):
        q = h**2 + (other * v) ** 2
        for a, b in itertools.product((0, 1), repeat=2):
            n = float(a + b)
            power = v ** (a if turned else b) * share
            m[a, b] += (np.sum(power * q ** (-s / 2)) * radial(n) if s else
                        np.sum(power) * radial(n) - 0.5 * np.sum(power * np.log(q)) / (n + 2))
    return np.array([[m[0, 0] - m[1, 0] - m[0, 1] + m[1, 1], m[0, 1] - m[1, 1]], [m[1, 0] - m[1, 1], m[1, 1]]])


def graded_sphere_average(kernel: Interaction, r: Array, gap: Array, dim: int) -> Array:
    """The mean of g(|x - y|) over the directions of y, |x| = r and |y| = r + gap, in dimension dim >= 2:

        int_0^pi g(sqrt(gap^2 + 4 r (r + gap) sin(theta / 2)^2)) sin(theta)^(dim-2) dtheta / int_0^pi sin^(dim-2).

    On the near half sin(theta / 2) = e sinh(u) with e = gap / (2 sqrt(r (r + gap))), so that the distance is gap cosh(u):
    smooth in u however small the gap, over a range that grows with its logarithm.
    """
    r, gap = np.broadcast_arrays(r, gap)
    chord = (2.0 * np.sqrt(r * (r + gap))).ravel()
    ratio = np.maximum(np.abs(gap).ravel() / chord, 1e-18)
    reach = np.arcsinh(math.sqrt(0.5) / ratio)
    node, weight = gauss(20)
    theta = 0.5 * np.pi * (1.0 + node)
    half, far = np.sin(theta / 2), 0.5 * np.pi * weight * np.sin(theta) ** (dim - 2)
    out, order = np.empty(ratio.size), np.argsort(reach)
    done = 0
    while done < out.size:
        panels = math.ceil(reach[order[done]] / 2.0)
        same = int(np.searchsorted(reach, 2.0 * panels, side="right", sorter=order))
        part = order[done:min(same, done + max(1, _VALUES // (14 * panels)))]
        done += part.size
        node, weight = gauss(14, panels)
        e, c = ratio[part, None], chord[part, None]
        rise = np.exp(reach[part, None] * node)
        fall = 1.0 / rise
        sine, cosh = 0.5 * e * (rise - fall), 0.5 * (rise + fall)
        cosine = np.sqrt(1.0 - np.square(sine))
        near = weight * reach[part, None] * (2.0 * sine * cosine) ** (dim - 2) * 2.0 * e * cosh / cosine
        out[part] = ((kernel.value(c * e * cosh) * near).sum(axis=1)
                     + kernel.value(c * np.sqrt(np.square(e) + np.square(half))) @ far)
    return (out / (math.sqrt(math.pi) * math.gamma((dim - 1) / 2) / math.gamma(dim / 2))).reshape(r.shape)


def power_sphere_average(s: float, r: Array, gap: Array, softening: float, dim: int) -> Array | None:
    """The mean of q^(-s/2), or of -log(q) / 2 for s = 0, over the directions of y; q = |x - y|^2 + softening^2.

    With A >= B, A^2 + B^2 = r^2 + r'^2 + softening^2 and A B = r r' it is A^-s 2F1(s/2, (s - dim)/2 + 1; dim/2; (B/A)^2):
    A^-s alone for the Coulomb kernel s = dim - 2. The logarithm's is its derivative at s = 0, a polynomial for even dim
    (-log A in the plane); None for odd dim. Source: DLMF 15.2, the generating function of Gegenbauer polynomials.
    """
    inner, outer = np.hypot(gap, softening), np.hypot(2 * r + gap, softening)
    larger = 0.5 * (inner + outer)
    if s == dim - 2.0 and s:
        return np.asarray(larger**-s)
    complement = inner * outer / np.square(larger)  # 1 - (B/A)^2, which cancels near the sphere
    if s:
        return np.asarray(larger**-s * _hypergeometric(0.5 * s, 0.5 * (s - dim) + 1.0, 0.5 * dim, complement))
    if dim % 2:
        return None
    average = -np.log(larger)
    term = np.ones_like(average)
    for k in range(1, dim // 2):
        term = term * (k - dim / 2) / (dim / 2 + k - 1) * (1.0 - complement)
        average = average + 0.5 * term / k
    return np.asarray(average)


def _hypergeometric(a: float, b: float, c: float, y: Array) -> Array:
    """2F1(a, b; c; 1 - y) on 0 < y <= 1, with the digits of y near 0 (DLMF 15.2.1, 15.8.1, 15.8.4 and 15.8.10)."""
    excess = c - a - b
    if excess < 0.0:
        return np.asarray(y**excess * _hypergeometric(c - a, c - b, c, y))
    if excess > 0.5 and abs(excess - round(excess)) < 1e-3:
        return np.asarray(hyp2f1(a, b, c, 1.0 - y))  # bounded at y = 0; the two terms below would cancel
    small = y < 0.5
    out = np.empty_like(y)
    out[~small] = _series(a, b, c, 1.0 - y[~small])
    near = y[small]
    if excess < 1e-8:  # here their limit is a logarithm
        value, term, log = np.zeros_like(near), np.ones_like(near), np.log(near)
        for k in range(_TERMS):
            value += term * (2 * digamma(k + 1) - digamma(a + k) - digamma(b + k) - log)
            term *= (a + k) * (b + k) / (k + 1) ** 2 * near
        out[small] = gamma(c) * rgamma(a) * rgamma(b) * value
        return out
    regular = gamma(excess) * rgamma(c - a) * rgamma(c - b) * _series(a, b, 1.0 - excess, near)
    singular = gamma(-excess) * rgamma(a) * rgamma(b) * _series(c - a, c - b, 1.0 + excess, near)
    out[small] = gamma(c) * (regular + near**excess * singular)
    return out


def _series(a: float, b: float, c: float, y: Array) -> Array:
    """2F1(a, b; c; y) for 0 <= y <= 1/2 by its series: a tenth of the time of scipy's."""
    total = np.ones_like(y)
    for k in range(_TERMS, -1, -1):
        total *= (a + k) * (b + k) / ((c + k) * (k + 1.0)) * y
        total += 1.0
    return total
