"""Finite volumes along one axis: Scharfetter-Gummel flows and the tridiagonal systems they make, for many lines at once.

Arrays are (cell, line): the sweep goes along the first axis, and the second is what the compiler vectorises. The unknown is
q, the mass of a cell (in any unit); the flow through the face between cells i and i + 1 of a line is up_i q_i - down_i q_{i+1},
with no flow through walls; the last slot is the face that closes a period. up and down are not negative, and the flow
vanishes exactly on q ~ volume exp(-U / T): mass, positivity and discrete Gibbs states are kept by construction. T = 0 gives
the upwind flow. ``limited_coefficients`` scales the same flow to second order where drift dominates (see there).
"""

from __future__ import annotations

import math

import numpy as np

from meanfield._numba import bits_to_float, float_to_bits, njit

__all__ = ["cyclic_solve", "face_coefficients", "implicit_solve", "limited_coefficients", "mobility", "substitute"]

_LOG2E = 1.0 / math.log(2.0)
_LN2 = math.log(2.0)
_TINY = 1e-300
_BLOCK = 32  # lines swept at once, so that what the way down wrote is still in the cache on the way back
_MOST = 2.0  # of the second-order flow over the first-order one
# (e^r - 1) / r for |r| <= log(2) / 2: the next term is below 2^-56
_C1, _C2, _C3, _C4, _C5, _C6, _C7, _C8, _C9, _C10, _C11, _C12 = (1.0 / math.factorial(k + 1) for k in range(1, 13))


@njit(inline=True)
def _bernoulli(z):  # type: ignore[no-untyped-def]
    """z / (e^z - 1) for z >= 0 without a call to libm, so that loops around it vectorise (7 times math.expm1).

    e^z - 1 = 2^n r p(r) + (2^n - 1) with z = n log 2 + r cancels nowhere; relative error about 2^-53 (4 + z).
    """
    z = min(max(z, _TINY), 708.0)
    n = np.rint(z * _LOG2E)
    r = z - n * _LN2
    tail = _C6 + r * (_C7 + r * (_C8 + r * (_C9 + r * (_C10 + r * (_C11 + r * _C12)))))
    p = 1.0 + r * (_C1 + r * (_C2 + r * (_C3 + r * (_C4 + r * (_C5 + r * tail)))))
    power = bits_to_float((np.int64(n) + 1023) << 52)
    return z / (power * (r * p) + (power - 1.0))


@njit(part=True)
def _faces(before, after, temperature, rate_up, rate_down, up, down):  # type: ignore[no-untyped-def]
    inverse = 1.0 / temperature if temperature > 0.0 else 0.0
    for k in range(before.size):
        rise = after[k] - before[k]
        # B(-z) = B(z) + z, taken from the side where B does not cancel
        b = temperature * _bernoulli(min(abs(rise) * inverse, 708.0))
        up[k] = rate_up[k] * (b + max(-rise, 0.0))
        down[k] = rate_down[k] * (b + max(rise, 0.0))


@njit()
def face_coefficients(drift_potential, temperature, rate_up, rate_down, up, down):  # type: ignore[no-untyped-def]
    """up = T B(dU / T) c / volume_i and down = T B(-dU / T) c / volume_{i+1} on the faces i | i + 1, dU = U_{i+1} - U_i.

    ``rate_up`` and ``rate_down`` are c / volume_i and c / volume_{i+1}, c the conductance (0 at walls).
    """
    m, lines = drift_potential.shape
    n = (m - 1) * lines
    u = drift_potential.reshape(m * lines)
    a, b, f, g = (rate_up.reshape(m * lines), rate_down.reshape(m * lines), up.reshape(m * lines), down.reshape(m * lines))
    _faces(u[:n], u[lines:], temperature, a[:n], b[:n], f[:n], g[:n])
    _faces(u[n:], u[:lines], temperature, a[n:], b[n:], f[n:], g[n:])


@njit(part=True)
def _limit(u, v, log_i, log_j, behind, rho_i, rho_j, ahead, inverse, up, down):  # type: ignore[no-untyped-def]
    for k in range(u.size):
        z = (v[k] - u[k]) * inverse
        y = z + log_j[k] - log_i[k] if inverse < math.inf else v[k] - u[k]
        back = y > 0.0  # mass flows from j to i
        source, target = (rho_j[k], rho_i[k]) if back else (rho_i[k], rho_j[k])
        a = source - (ahead[k] if back else behind[k])
        b = target - source
        slope = 2.0 * a * b / (a + b) if a * b > 0.0 else 0.0  # van Leer
        theta = (source + 0.5 * slope + _TINY) / (source + _TINY)
        if inverse < math.inf:
            size = abs(y)
            against = -z if back else z
            b_flow = _bernoulli(size) + size
            b_drift = _bernoulli(abs(against)) + max(-against, 0.0)
            theta = theta * b_flow / max(b_drift, _TINY)
        theta = min(theta, _MOST)
        up[k] *= theta
        down[k] *= theta


@njit()
def limited_coefficients(drift_potential, log_rho, rho, temperature, up, down):  # type: ignore[no-untyped-def]
    """Scale up and down of ``face_coefficients`` so that the flow is of second order whatever the drift.

    The second-order flow is J = -c rho_face (xi_{i+1} - xi_i) with xi = U + T log rho and rho_face the van Leer
    reconstruction from the side that mass comes from (Carrillo, Chertock, Huang 2015). It and the Scharfetter-Gummel flow
    J_SG have the same sign and vanish together, and with y = (xi_{i+1} - xi_i) / T, z = dU / T, i the source,

        J / J_SG = (rho_face / rho_i) B(y) / B(z),

    smooth and positive. Frozen, it only scales the conductance of a face: implicit steps keep mass, positivity and Gibbs
    states as before, and the free energy falls for the same reason. It is at most 2, as it is for T = 0.
    """
    m, lines = rho.shape
    n = m * lines
    u, p, r, f, g = (drift_potential.reshape(n), log_rho.reshape(n), rho.reshape(n), up.reshape(n), down.reshape(n))
    inverse = 1.0 / temperature if temperature > 0.0 else math.inf
    first, last, end = lines, (m - 2) * lines, (m - 1) * lines
    if m > 2:
        _limit(u[first:last], u[2 * lines:end], p[first:last], p[2 * lines:end], r[:last - first], r[first:last],
               r[2 * lines:end], r[3 * lines:], inverse, f[first:last], g[first:last])
    # at a wall there is nothing behind: the slope ahead is taken; on a periodic line, what is across the seam
    for j in range(lines):
        closed = f[end + j] + g[end + j] > 0.0
        for i in (0, m - 2, m - 1):
            if i == m - 2 and m == 2 or i == m - 1 and not closed:
                continue
            here, there = i * lines + j, ((i + 1) % m) * lines + j
            behind = r[(i - 1) % m * lines + j] if i > 0 or closed else 2.0 * r[here] - r[there]
            ahead = r[(i + 2) % m * lines + j] if i + 2 < m or closed else 2.0 * r[there] - r[here]
            _limit(u[here:here + 1], u[there:there + 1], p[here:here + 1], p[there:there + 1], np.array([behind]),
                   r[here:here + 1], r[there:there + 1], np.array([ahead]), inverse, f[here:here + 1], g[here:here + 1])


@njit(part=True)
def _moves(before, after, q_i, q_j, temperature, rate_up, rate_down, up, down, out):  # type: ignore[no-untyped-def]
    inverse = 1.0 / temperature if temperature > 0.0 else math.inf
    for k in range(before.size):
        rise = after[k] - before[k]
        if inverse < math.inf:
            z = min(abs(rise) * inverse, 708.0)
            b = _bernoulli(z)
            # -B'(z) = B (B + z - 1) / z, by its series where that cancels; -B'(-z) = 1 + B'(z)
            slope = 0.5 - z / 6.0 + z * z * z / 180.0 if z < 0.02 else b * (b + z - 1.0) / z
            drift = temperature * b + abs(rise)
        else:
            slope = 0.0 if rise != 0.0 else 0.5
            drift = abs(rise)
        # the limiter's factor, from the larger of the two coefficients
        plain = (rate_down[k] if rise > 0.0 else rate_up[k]) * drift
        theta = (down[k] if rise > 0.0 else up[k]) / plain if plain > 0.0 else 1.0
        rising = slope if rise >= 0.0 else 1.0 - slope
        out[k] = theta * (rate_up[k] * rising * q_i[k] + rate_down[k] * (1.0 - rising) * q_j[k])


@njit()
def mobility(drift_potential, q, temperature, rate_up, rate_down, up, down, out):  # type: ignore[no-untyped-def]
    """out = -dJ / d(dU) >= 0 on the faces: how a flow answers to the drift; ``up`` and ``down`` tell the limiter's factor."""
    m, lines = q.shape
    n, size = (m - 1) * lines, m * lines
    u, w, a, b = drift_potential.reshape(size), q.reshape(size), rate_up.reshape(size), rate_down.reshape(size)
    f, g, o = up.reshape(size), down.reshape(size), out.reshape(size)
    _moves(u[:n], u[lines:], w[:n], w[lines:], temperature, a[:n], b[:n], f[:n], g[:n], o[:n])
    _moves(u[n:], u[:lines], w[n:], w[:lines], temperature, a[n:], b[n:], f[n:], g[n:], o[n:])


@njit()
def implicit_solve(up, down, step, rhs, out, inverse, back):  # type: ignore[no-untyped-def]
    """out = (1 + step L)^{-1} rhs along each line with walls, L the outflow, by elimination without subtraction.

    1 + step L is an M-matrix with column sums 1. Going down, the pivot of row i is 1 + step up_i + d_i with
    d_i = step down_{i-1} (1 + d_{i-1}) / pivot_{i-1} >= 0, so no pivot cancels and a non-negative right side stays
    non-negative; going up it is the mirror image. ``inverse`` and ``back`` (cell, line) keep the factors for ``substitute``.
    """
    m, lines = rhs.shape
    if lines == 1:
        _solve_line(up.reshape(m), down.reshape(m), step, rhs.reshape(m), out.reshape(m), inverse.reshape(m), back.reshape(m))
        return
    for first in range(0, lines, _BLOCK):
        last = min(first + _BLOCK, lines)
        for j in range(first, last):
            back[0, j] = 0.0
            out[0, j] = rhs[0, j]
        for i in range(m - 1):
            for j in range(first, last):
                excess = back[i, j]  # d_i, which makes room for the factor once d_{i+1} is known
                leave, enter = step * up[i, j], step * down[i, j]
                pivot = 1.0 / (1.0 + excess + leave)
                value = out[i, j] * pivot
                out[i, j] = value
                inverse[i, j] = pivot
                back[i, j] = enter * pivot
                back[i + 1, j] = enter * (1.0 + excess) * pivot
                out[i + 1, j] = rhs[i + 1, j] + leave * value
        for j in range(first, last):
            inverse[m - 1, j] = 1.0 / (1.0 + back[m - 1, j])
            out[m - 1, j] *= inverse[m - 1, j]
        for i in range(m - 2, -1, -1):
            for j in range(first, last):
                out[i, j] += back[i, j] * out[i + 1, j]


@njit(part=True)
def _solve_line(up, down, step, rhs, out, inverse, back):  # type: ignore[no-untyped-def]
    # each pivot waits for the one before, so both ends are eliminated at once and meet in the middle: half the waiting
    m = rhs.size
    h = m // 2
    below = above = from_below = from_above = 0.0
    for n in range(h):
        i, k = n, m - 1 - n
        if k > h:
            pivot_high = 1.0 / (1.0 + above + step * down[k - 1])
            value_high = (rhs[k] + from_above) * pivot_high
            inverse[k], out[k] = pivot_high, value_high
            back[k] = step * up[k - 1] * pivot_high
            above = back[k] * (1.0 + above)
            from_above = step * down[k - 1] * value_high
        pivot = 1.0 / (1.0 + below + step * up[i])
        value = (rhs[i] + from_below) * pivot
        inverse[i], out[i] = pivot, value
        back[i] = step * down[i] * pivot
        below = back[i] * (1.0 + below)
        from_below = step * up[i] * value
    inverse[h] = 1.0 / (1.0 + below + above)
    out[h] = (rhs[h] + from_below + from_above) * inverse[h]
    _from_middle(out, back)


@njit(part=True)
def _from_middle(out, back):  # type: ignore[no-untyped-def]
    m = out.size
    h = m // 2
    for n in range(1, h + 1):
        out[h - n] += back[h - n] * out[h - n + 1]
        if h + n < m:
            out[h + n] += back[h + n] * out[h + n - 1]


@njit()
def substitute(up, down, step, rhs, stage, share, out, inverse, back):  # type: ignore[no-untyped-def]
    """out = (1 + step L)^{-1} (rhs + share (stage - rhs)) with the factors that ``implicit_solve`` left."""
    m, lines = rhs.shape
    keep = 1.0 - share
    if lines == 1:
        h = m // 2
        from_below = from_above = 0.0
        for n in range(h):
            k = m - 1 - n
            if k > h:
                value_high = (keep * rhs[k, 0] + share * stage[k, 0] + from_above) * inverse[k, 0]
                out[k, 0] = value_high
                from_above = step * down[k - 1, 0] * value_high
            value = (keep * rhs[n, 0] + share * stage[n, 0] + from_below) * inverse[n, 0]
            out[n, 0] = value
            from_below = step * up[n, 0] * value
        out[h, 0] = (keep * rhs[h, 0] + share * stage[h, 0] + from_below + from_above) * inverse[h, 0]
        _from_middle(out.reshape(m), back.reshape(m))
        return
    for first in range(0, lines, _BLOCK):
        last = min(first + _BLOCK, lines)
        for j in range(first, last):
            out[0, j] = (keep * rhs[0, j] + share * stage[0, j]) * inverse[0, j]
        for i in range(1, m):
            for j in range(first, last):
                entered = step * up[i - 1, j] * out[i - 1, j]
                out[i, j] = (keep * rhs[i, j] + share * stage[i, j] + entered) * inverse[i, j]
        for i in range(m - 2, -1, -1):
            for j in range(first, last):
                out[i, j] += back[i, j] * out[i + 1, j]


@njit()
def cyclic_solve(up, down, step, rhs, out, work):  # type: ignore[no-untyped-def]
    """``implicit_solve`` on lines that close on themselves: the last row of ``up`` and ``down`` is the face to the first cell.

    Cells are eliminated in order, the flows between each and the last cell carried along; the last cell closes the ring. A
    pivot is the column's sum (1, and what came to it) plus the flows that leave, all of them non-negative: nothing is
    subtracted here either. ``work`` is (5, cell, line).
    """
    m, lines = rhs.shape
    last = m - 1
    for j in range(lines):
        work[1, 0, j] = 1.0  # column sum
        work[3, 0, j] = step * down[last, j]  # flow to the last cell
        work[4, 0, j] = step * up[last, j]  # flow from it
        out[0, j] = rhs[0, j]
        work[1, last, j] = 1.0
        out[last, j] = rhs[last, j]
    for i in range(m - 2):
        for j in range(lines):
            rest, leave, enter = work[1, i, j], step * up[i, j], step * down[i, j]
            to_last, from_last = work[3, i, j], work[4, i, j]
            inverse = 1.0 / (rest + leave + to_last)
            value = out[i, j] * inverse
            out[i, j] = value
            work[0, i, j] = enter * inverse
            work[2, i, j] = from_last * inverse
            work[1, i + 1, j] = 1.0 + enter * rest * inverse
            work[3, i + 1, j] = to_last * enter * inverse
            work[4, i + 1, j] = leave * from_last * inverse
            out[i + 1, j] = rhs[i + 1, j] + leave * value
            work[1, last, j] += from_last * rest * inverse
            out[last, j] += to_last * value
    i = last - 1
    for j in range(lines):
        rest = work[1, i, j]
        leave, enter = step * up[i, j] + work[3, i, j], step * down[i, j] + work[4, i, j]
        inverse = 1.0 / (rest + leave)
        value = out[i, j] * inverse
        end = (out[last, j] + leave * value) / (work[1, last, j] + enter * rest * inverse)
        out[last, j] = end
        out[i, j] = value + enter * inverse * end
    for i in range(m - 3, -1, -1):
        for j in range(lines):
            out[i, j] += work[0, i, j] * out[i + 1, j] + work[2, i, j] * out[last, j]
