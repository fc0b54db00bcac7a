"""Loops over cells that the time steps of ``solve`` need: flows, sums, positivity. Masses are (cell, line)."""

from __future__ import annotations

from meanfield._numba import njit

__all__ = ["add_inflow", "add_response", "blend_to_positive", "defect", "drift_ratio", "totals", "transpose"]

_NOTHING = 1e-290  # flows whose reciprocal could overflow (0 times inf is not a number) are not worth a cut
_TILE = 16
_BLOCK = 512  # terms added up before they join the sum: round-off grows with the number of blocks only


@njit()
def transpose(cells, out):  # type: ignore[no-untyped-def]
    """out = cells^T in tiles that fit the cache (3 times NumPy's copy)."""
    m, n = cells.shape
    for i0 in range(0, m, _TILE):
        for j0 in range(0, n, _TILE):
            for j in range(j0, min(j0 + _TILE, n)):
                for i in range(i0, min(i0 + _TILE, m)):
                    out[j, i] = cells[i, j]


@njit()
def add_inflow(up, down, q, out):  # type: ignore[no-untyped-def]
    """out += the mass that flows into each cell in a unit of time, along the first axis."""
    m, lines = q.shape
    n, size = (m - 1) * lines, m * lines
    f, g, w, o = up.reshape(size), down.reshape(size), q.reshape(size), out.reshape(size)
    for k in range(lines, n):
        o[k] += f[k - lines] * w[k - lines] - g[k - lines] * w[k] - f[k] * w[k] + g[k] * w[k + lines]
    for j in range(lines):
        wrap = f[n + j] * w[n + j] - g[n + j] * w[j]
        first = f[j] * w[j] - g[j] * w[lines + j]
        last = f[n - lines + j] * w[n - lines + j] - g[n - lines + j] * w[n + j]
        o[j] += wrap - first
        o[n + j] += last - wrap


@njit()
def add_response(mobility, phi, step, out):  # type: ignore[no-untyped-def]
    """out += step times the outflow that a change phi of the drift potential causes, J' = mobility (phi_i - phi_{i+1})."""
    m, lines = phi.shape
    n, size = (m - 1) * lines, m * lines
    c, p, o = mobility.reshape(size), phi.reshape(size), out.reshape(size)
    for k in range(lines, n):
        o[k] += step * (c[k] * (p[k] - p[k + lines]) - c[k - lines] * (p[k - lines] - p[k]))
    for j in range(lines):
        wrap = c[n + j] * (p[n + j] - p[j])
        o[j] += step * (c[j] * (p[j] - p[lines + j]) - wrap)
        o[n + j] += step * (wrap - c[n - lines + j] * (p[n - lines + j] - p[n + j]))


@njit()
def totals(q, drift_potential, potential, log_rho):  # type: ignore[no-untyped-def]
    """sum q (U + V) / 2 and sum q log rho."""
    n = q.size
    w, u, v, p = q.reshape(n), drift_potential.reshape(n), potential.reshape(n), log_rho.reshape(n)
    energy, entropy = 0.0, 0.0
    for k0 in range(0, n, _BLOCK):
        part, other = 0.0, 0.0
        for k in range(k0, min(k0 + _BLOCK, n)):
            part += w[k] * (u[k] + v[k])
            other += w[k] * p[k]
        energy += part
        entropy += other
    return 0.5 * energy, entropy


@njit()
def defect(new, old, rate_new, rate_old, rate_before, weights, out):  # type: ignore[no-untyped-def]
    """out = new - old - (w_0 rate_new + w_1 rate_old + w_2 rate_before)."""
    n = new.size
    a, b, f, g, h, o = (new.reshape(n), old.reshape(n), rate_new.reshape(n), rate_old.reshape(n), rate_before.reshape(n),
                        out.reshape(n))
    w0, w1, w2 = weights
    for k in range(n):
        o[k] = a[k] - b[k] - w0 * f[k] - w1 * g[k] - w2 * h[k]


@njit()
def drift_ratio(drift_potential, q, rate):  # type: ignore[no-untyped-def]
    """sum q dU^2 over the open faces, divided by sum q there: the square of a typical step of U between cells."""
    m, lines = q.shape
    n, size = (m - 1) * lines, m * lines
    u, w, c = drift_potential.reshape(size), q.reshape(size), rate.reshape(size)
    total, mass = 0.0, 0.0
    for k in range(n):
        rise = u[k + lines] - u[k]
        share = w[k] + w[k + lines] if c[k] > 0.0 else 0.0
        total += share * rise * rise
        mass += share
    return total / mass if mass > 0.0 else 0.0


@njit()
def blend_to_positive(low, high, out):  # type: ignore[no-untyped-def]
    """Of two results with the same mass a line, low >= 0: high, its flows cut where they would empty a cell.

    high = low - (D_i - D_{i-1}); a face keeps the share of its flow D that the cell it drains can give
    (Zalesak 1979), so that cells away from trouble keep the better result. out may be neither low nor high.
    """
    m, lines = low.shape
    for j in range(lines):
        flow = low[0, j] - high[0, j]
        drained = max(flow, 0.0)
        share = low[0, j] / drained if drained > max(low[0, j], _NOTHING) else 1.0
        kept_before = 0.0
        for i in range(m):
            after = flow + low[i + 1, j] - high[i + 1, j] if i + 1 < m - 1 else 0.0
            if i + 1 < m:
                drained = max(after, 0.0) + max(-flow, 0.0)
                share_after = low[i + 1, j] / drained if drained > max(low[i + 1, j], _NOTHING) else 1.0
            else:
                share_after = 1.0
            kept = flow * (share if flow > 0.0 else share_after) if i < m - 1 else 0.0
            out[i, j] = max(low[i, j] - kept + kept_before, 0.0)
            kept_before = kept
            flow, share = after, share_after
