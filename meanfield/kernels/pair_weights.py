"""What one pair feels, as source lines for the generated pair loops: the place where a family of interactions is added.

A ``Weight`` gives lines that turn the squared distances q0 .. q3 of four pairs into w0 .. w3 (the mark ``$u`` stands for
0 to 3, see ``pair_loops.expand``), in two versions that agree to rounding:

- ``fast`` where every q is in [LOW, HIGH]: products of four cannot leave the range of float64, and a q of zero has been
  lifted to LOW, where w is finite and w times a displacement of zero is zero;
- ``safe`` for any q >= 0, with w = 0 at q = 0.

None of them calls libm (its log, exp and pow are scalar: 0.06 against 1 billion pairs a second). To add a family, add a
branch to ``force_weight`` and ``energy_weight`` whose lines may use ``power``, a number that the caller passes; lines
that call a compiled function of q do as well.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HIGH", "LOGARITHM", "LOW", "POLYNOMIALS", "POWER", "SPRING", "Weight", "energy_weight", "force_weight"]

LOGARITHM, POWER, SPRING = 0, 1, 2
LOW, HIGH = 2.0**-240, 2.0**240
# |exponent| up to which q in [LOW, HIGH] keeps q^exponent in range; beyond, the safe lines are always taken
_LARGEST_EXPONENT = 4.0

# 2^f for |f| <= 1/2 and log2((1 + z) / (1 - z)) / z as a polynomial in z^2 for m = (1 + z) / (1 - z) in [1 / sqrt 2,
# sqrt 2], highest power first: Chebyshev interpolants, relative errors 3e-16 and 2e-16
_EXP2 = (7.072585949269223e-09, 1.0208690299958306e-07, 1.321544258792169e-06, 1.5252657260200837e-05,
         0.0001540353044173605, 0.0013333558230164974, 0.009618129107606888, 0.05550410866444772, 0.24022650695910097,
         0.69314718055995, 1.0)
_LOG2 = (0.24291664882901742, 0.26144420376798555, 0.3206163895036508, 0.4121984020294519, 0.5770780172464439,
         0.9617966939243343, 2.885390081777927)
_LOG_OF_2 = 0.6931471805599453
# bits of q^(-1/2) are about _ROOT_MAGIC - bits / 2: then t = q b^2 is within 6.6 % of 0.988, and the quadratic that is
# closest to t^(-1/2) there brings the error to 2.3e-5
_ROOT_MAGIC = 0x5FE6C25B0525DC00
_ROOT_STEP = (0.387948368, -1.27676796, 1.88880696)
# the polynomials that the lines name; ROOTk is the series of (1 - e)^(-k/2)
POLYNOMIALS = {"EXP2": _EXP2, "LOG2": _LOG2, "ROOT": _ROOT_STEP,
               **{f"ROOT{k}": (k * (k + 2) * (k + 4) / 48, k * (k + 2) / 8, k / 2, 1.0) for k in range(1, 9)}}


@dataclass(frozen=True)
class Weight:
    """Lines for w0 .. w3.

    ``name`` is unique; ``always_safe``: the fast lines have no range to be trusted in; ``joint``: the fast lines put the
    sum of all four into w0 (energies only), and q = 1 adds nothing to it.
    """

    name: str
    fast: str
    safe: str
    always_safe: bool = False
    joint: bool = False


def _horner(variable: str, name: str) -> str:
    """One call instead of a sum: Numba takes a millisecond for each operation of each of four lines."""
    return f"polynomial({variable}, {name})"


def _inverse(source: str, target: str) -> str:
    """Four reciprocals by one division and nine products: 1.47 (bound by the divider) to 2.6 billion pairs a second."""
    return f"""
_left = {source}0 * {source}1
_right = {source}2 * {source}3
_whole = 1.0 / (_left * _right)
_for_left = _whole * _right
_for_right = _whole * _left
{target}0 = _for_left * {source}1
{target}1 = _for_left * {source}0
{target}2 = _for_right * {source}3
{target}3 = _for_right * {source}2
"""


def _product(name: str, count: int) -> str:
    """name^count with the fewest multiplications that halving needs."""
    if count == 1:
        return name
    half = _product(name, count // 2)
    return f"(({half}) * ({half})" + (f" * {name})" if count % 2 else ")")


def _masked(lines: str) -> str:
    """The safe frame: lift q = 0, and give it no weight."""
    return ("_live$u = q$u > 0.0\nq$u = q$u if q$u > 2.2250738585072014e-308 else 2.2250738585072014e-308\n"
            + lines + "w$u = w$u if _live$u else 0.0\n")


def _inverse_power(count: int) -> Weight:
    power = f"w$u = {_product('_v$u', count)}\n"
    return Weight(f"inverse{count}", _inverse("q", "_v") + power, _masked("_v$u = 1.0 / q$u\n" + power),
                  count > _LARGEST_EXPONENT)


def _inverse_root(count: int) -> Weight:
    """q^(-count/2): the integer trick, one tuned step, then the series of (1 - e)^(-count/2) to e^3, error below 1e-15.

    Square root and division keep the divider busy: 1.3 against 1.6 billion pairs a second in space.
    """
    series = _horner("_e$u", f"ROOT{count}")
    fast = f"""
_b$u = bits_to_float({_ROOT_MAGIC} - (float_to_bits(q$u) >> 1))
_t$u = q$u * _b$u * _b$u
_b$u = _b$u * ({_horner("_t$u", "ROOT")})
_e$u = 1.0 - q$u * (_b$u * _b$u)
w$u = {_product("_b$u", count)} * ({series})
"""
    safe = f"_v$u = 1.0 / math.sqrt(q$u)\nw$u = {_product('_v$u', count)}\n"
    return Weight(f"root{count}", fast, _masked(safe), count / 2 > _LARGEST_EXPONENT)


def _log2(q: str, t: str, marks: str) -> str:
    """t = log2 q: exponent and mantissa m by integers, then the odd series of log2 in z = (m - 1) / (m + 1)."""
    lines = f"""
_i{marks} = float_to_bits({q}{marks})
_k{marks} = (_i{marks} - 0x3FE6A09E667F3BCD) >> 52
_m{marks} = bits_to_float(_i{marks} - (_k{marks} << 52))
_h{marks} = _m{marks} + 1.0
""" + (_inverse("_h", "_v") if marks else "_v = 1.0 / _h\n")
    return lines + f"""
_z{marks} = (_m{marks} - 1.0) * _v{marks}
_y{marks} = _z{marks} * _z{marks}
{t}{marks} = float(_k{marks}) + _z{marks} * ({_horner("_y" + marks, "LOG2")})
"""


def _real_power(always_safe: bool) -> Weight:
    """q^power = 2^(power log2 q) by two polynomials, error below 1e-14 (0.06 to 1 billion pairs a second)."""
    exponential = f"""
_n$u = rint(_t$u)
_c$u = _t$u - _n$u
w$u = bits_to_float(float_to_bits({_horner("_c$u", "EXP2")}) + (int(_n$u) << 52))
"""
    log = _log2("q", "_t", "$u") + "_t$u = power * _t$u\n"
    clamp = "_t$u = _t$u if _t$u > -1022.0 else -1022.0\n_t$u = _t$u if _t$u < 1023.0 else 1023.0\n"
    return Weight("real", log + exponential, _masked(log + clamp + exponential), always_safe)


def _logarithm() -> Weight:
    """Energies -1/2 log q: one logarithm of the product of four; w0 holds the sum of all four."""
    rest = "w1 = w2 = w3 = 0.0\n"
    fast = ("_q = (q0 * q1) * (q2 * q3)\n" + _log2("_q", "_t", "") + f"w0 = {-0.5 * _LOG_OF_2!r} * _t\n" + rest)
    safe = _masked(_log2("q", "_t", "$u") + f"w$u = {-0.5 * _LOG_OF_2!r} * _t$u\n")
    return Weight("logarithm", fast, safe, joint=True)


def _power(exponent: float) -> Weight:
    if exponent < 0 and exponent == int(exponent) and exponent > -8:
        return _inverse_power(int(-exponent))
    if exponent < 0 and 2 * exponent == int(2 * exponent) and exponent > -4:
        return _inverse_root(int(-2 * exponent))
    if exponent == 0.5:
        return Weight("square_root", "w$u = math.sqrt(q$u)\n", _masked("w$u = math.sqrt(q$u)\n"))
    return _real_power(abs(exponent) > _LARGEST_EXPONENT)


def force_weight(family: int, s: float) -> tuple[Weight, float, float]:
    """(weight, ``power``, factor): the force on x_k by x_l is factor times coupling w(q) (x_k - x_l)."""
    if family == LOGARITHM:
        return _inverse_power(1), -1.0, 1.0
    if family == POWER:
        # |s| of -grad g = |s| r^(-s-2) r_vec (method.md 4.2)
        return _power(-0.5 * s - 1.0), -0.5 * s - 1.0, abs(s)
    raise ValueError(f"no pair loop for family {family}")


def energy_weight(family: int, s: float) -> tuple[Weight, float, float, float]:
    """(weight, ``power``, factor, w of a coincident pair); the energy of a pair is factor times coupling w(q)."""
    infinite = float("inf")
    if family == LOGARITHM:
        return _logarithm(), 0.0, 1.0, infinite
    if family == POWER:
        return _power(-0.5 * s), -0.5 * s, 1.0 if s > 0 else -1.0, infinite if s > 0 else 0.0
    raise ValueError(f"no pair loop for family {family}")
