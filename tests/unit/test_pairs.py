"""Direct pair sums: every family, dimension and softening against sums in extended precision, and the same bits always."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from processes import compiled_and_interpreted, run_program

from meanfield.kernels.pair_weights import LOGARITHM, POWER, SPRING
from meanfield.kernels.pairs import add_pair_forces, pair_energies

# even s are whole powers of q = r^2, odd ones half-integer powers, the rest any real; beyond 6 the slower loops
EXPONENTS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.5, 0.7, 2.3, 1e-8, -0.5, -1.0, -1.5, -1.99, 6.5, 7.0, 8.0, 12.0)
LAWS = {"log": (LOGARITHM, 0.0), **{f"s={s:g}": (POWER, s) for s in EXPONENTS}, "spring": (SPRING, 0.0)}
DIMS = (1, 2, 3, 4, 5, 8, 32)
# every (law, dimension up to 4 and beyond) is a second or two of compiling, once
QUICK = {("log", 1), ("log", 2), ("log", 3), ("log", 5), ("log", 8), ("log", 32), ("s=1", 3), ("s=0.7", 2), ("s=-1", 1),
         *(("spring", dim) for dim in DIMS)}
CASES = [pytest.param(law, dim, marks=[] if (law, dim) in QUICK else pytest.mark.full) for law in LAWS for dim in DIMS]
COUPLING = 1.3


def cloud(n, dim, runs=1, seed=0):
    """Points on a grid of 2^-30: differences, and shifts by 1024, are exact."""
    return np.random.default_rng([seed, n, dim]).integers(-2**30, 2**30, (runs, n, dim)) * 2.0**-30


def forces(x, law, softening=0.0, core=0.0):
    out = np.zeros_like(x)
    add_pair_forces(x, LAWS[law][0], COUPLING, LAWS[law][1], softening**2, core**2, out)
    return out


def energies(x, law, softening=0.0):
    out = np.zeros(len(x))
    pair_energies(x, LAWS[law][0], COUPLING, LAWS[law][1], softening**2, np.empty(x.shape[:2]), out)
    return out


def reference(x, law, softening=0.0, core=0.0, rows=None):
    """Forces on the particles ``rows`` and their energies with all earlier ones, each with its sum of magnitudes."""
    (family, s), x = LAWS[law], x.astype(np.longdouble)
    s, softening = np.longdouble(s), softening if family != SPRING else 0.0
    found = []
    for k in range(len(x)) if rows is None else rows:
        d = x[k] - x
        distance = np.sqrt(np.square(d).sum(axis=1))
        bare = distance**2 + np.longdouble(softening) ** 2
        q = np.maximum(bare, np.longdouble(core) ** 2)
        live, earlier = q > 0, bare[:k]
        q[~live] = 1
        with np.errstate(divide="ignore"):
            if family == LOGARITHM:
                weight, energy = 1 / q, -np.log(earlier) / 2
            elif family == POWER:
                weight, energy = abs(s) * q ** (-s / 2 - 1), np.sign(s) * earlier ** (-s / 2)
            else:
                weight, energy = -np.ones_like(q), earlier / 2
        weight *= live
        found.append((weight @ d, np.abs(weight) @ distance, energy.sum(), np.abs(energy).sum()))
    return [COUPLING * np.array(values) for values in zip(*found, strict=True)]


def check_forces(x, law, softening=0.0, core=0.0, rows=None):
    """Within 1e-13 of the sum of magnitudes; all forces together are nothing."""
    found = forces(x[None], law, softening, core)[0]
    expected, size, *_ = reference(x, law, softening, core, rows)
    off = np.sqrt(np.square(found[slice(None) if rows is None else rows] - expected).sum(axis=1))
    assert (off <= 1e-13 * size).all()
    exact = found.astype(np.longdouble)
    assert np.abs(exact.sum(axis=0)).max() <= 1e-12 * np.abs(exact).sum()


def check_energies(x, law, softening=0.0):
    *_, expected, size = reference(x, law, softening)
    assert abs(energies(x[None], law, softening)[0] - expected.sum()) <= 1e-13 * size.sum()


@pytest.mark.parametrize(("softening", "core"), [(0.0, 0.0), (0.1, 0.0), (0.0, 0.3)], ids=["bare", "soft", "core"])
@pytest.mark.parametrize(("law", "dim"), CASES)
def test_bug_17_direct_sums_are_the_plain_sums(law, dim, softening, core):
    for n in (1, 2, 3, 7, 64, *([1000] if softening == core == 0 and (law == "log" or dim < 3) else [])):
        check_forces(cloud(n, dim)[0], law, softening, core)
        if core == 0:
            check_energies(cloud(n, dim)[0], law, softening)


@pytest.mark.parametrize(("law", "dim"), [c for c in CASES if c.values[1] in (1, 2, 5)])
def test_bug_01_repeated_points_feel_the_others_only(law, dim):
    x = cloud(9, dim)[0][[0, 1, 2, 3, 4, 0, 6, 7, 4, 0]]
    check_forces(x, law)
    check_forces(x, law, core=0.3)
    check_energies(x, law, softening=0.1)
    singular = LAWS[law][0] == LOGARITHM or LAWS[law][1] > 0
    if singular:
        assert energies(x[None], law)[0] == np.inf
    else:
        check_energies(x, law)


@pytest.mark.parametrize(("law", "dim", "n"), [
    ("log", 2, 2999), ("log", 2, 3001), ("log", 5, 3100), *(pytest.param(law, dim, n, marks=pytest.mark.full)
    for law in ("s=1", "s=0.7", "s=8") for dim in (1, 3, 8) for n in (3000, 3333, 9000))])
def test_sums_in_blocks_are_the_plain_sums(law, dim, n):
    """From 3000 particles on, blocks meet in a tournament: even and odd numbers of them, the last one not full."""
    check_forces(cloud(n, dim)[0], law, rows=np.arange(0, n, 61))
    if dim == 2:
        check_energies(cloud(n, dim)[0], law)


@pytest.mark.parametrize(("law", "dim"), CASES)
def test_order_of_the_particles_is_rounding(law, dim):
    x, order = cloud(200, dim)[0], np.random.default_rng(1).permutation(200)
    size = reference(x, law, rows=range(200))[1]
    plain, mixed = forces(x[None], law)[0], forces(x[None, order], law)[0]
    assert (np.abs(mixed - plain[order]).max(axis=1) <= 2e-14 * size[order]).all()
    assert_allclose(energies(x[None, order], law), energies(x[None], law), rtol=1e-12)


@pytest.mark.parametrize(("law", "dim"), CASES)
def test_bug_30_a_cloud_far_from_the_origin_has_the_same_bits(law, dim):
    """Only differences of positions enter, whatever the size of the positions themselves."""
    near = cloud(70, dim, runs=2)
    assert_array_equal(forces(near + 1024.0, law), forces(near, law))
    assert_array_equal(energies(near + 1024.0, law), energies(near, law))


def test_bug_30_a_close_pair_far_from_the_origin():
    x = np.array([[[1000.0, 1000.0], [1000.0 + 1e-6, 1000.0]]])
    gap = x[0, 1, 0] - 1000.0
    found = forces(x, "s=1")[0]
    assert_allclose(found[:, 0] / COUPLING, [-1 / gap**2, 1 / gap**2], rtol=1e-14)
    assert abs(found[1, 0] / COUPLING - 1e12) < 1e-3 * 1e12
    assert_array_equal(found[:, 1], 0)


@pytest.mark.parametrize("law", ["log", "s=-1", *(pytest.param(law, marks=pytest.mark.full) for law in LAWS)])
def test_tiny_and_huge_distances(law):
    """Exact as long as the power of the distance is a float64, from 1e-150 to 1e150; alone and in one cloud."""
    family, s = LAWS[law]
    for r in 10.0 ** np.array([-150, -100, -40, -37, -35, 35, 37, 40, 100, 150]):
        x = np.array([[0.0, 0.0], [0.6 * r, 0.8 * r]])
        power = {LOGARITHM: 2.0, POWER: s + 2, SPRING: 0.0}[family]
        if abs(power * np.log10(r)) < 290:  # or the weight is 0 or infinite
            expected = reference(x, law)[0]
            assert_allclose(forces(x[None], law)[0] / np.longdouble(expected[1, 1]), expected / expected[1, 1], rtol=3e-13)
        if abs(s * np.log10(r)) < 290:
            assert_allclose(energies(x[None], law)[0], float(reference(x, law)[2].sum()), rtol=3e-13)
    if LAWS[law][1] < 2:
        x = cloud(30, 2)[0] * np.repeat([1e-45, 1.0, 1e45], 10)[:, None]
        expected, size, *_ = reference(x, law)
        assert (np.abs(forces(x[None], law)[0] - expected).max(axis=1) <= 3e-13 * size).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("law", "dim"), [c for c in CASES if c.values[1] in (2, 5)])
def test_bug_44_what_is_not_finite_stays_in_its_run_and_shows(law, dim, bad):
    for n in (2, 40):
        x = cloud(n, dim, runs=3)
        broken = x.copy()
        broken[1, n // 2, 0] = bad
        with np.errstate(invalid="ignore"):
            found, energy = forces(broken, law), energies(broken, law)
        assert not np.isfinite(found[1]).all(axis=-1).any()
        assert np.isnan(energy[1])
        assert_array_equal(found[::2], forces(x, law)[::2])
        assert_array_equal(energy[::2], energies(x, law)[::2])


def test_sums_are_added_to_what_is_there():
    x = cloud(50, 2)
    for law in ("log", "s=0.7", "spring"):
        out, energy = forces(x, law), energies(x, law)
        add_pair_forces(x, LAWS[law][0], COUPLING, LAWS[law][1], 0.0, 0.0, out)
        pair_energies(x, LAWS[law][0], COUPLING, LAWS[law][1], 0.0, np.empty(x.shape[:2]), energy)
        assert_array_equal(out, 2 * forces(x, law))
        assert_array_equal(energy, 2 * energies(x, law))


SAME_BITS = """
from meanfield._numba import active_threads, with_threads
from test_pairs import cloud, energies, forces
for law, dim, runs, n in {cases}:
    x, seen = cloud(n, dim, runs), set()
    for threads in (1, 2, 3, 8):
        with with_threads(threads):
            assert active_threads() == threads
            seen |= {{forces(x, law).tobytes() + energies(x, law).tobytes() for _ in range({repeats})}}
            alone = [(forces(run[None], law).tobytes(), energies(run[None], law).tobytes()) for run in x]
            seen.add(b"".join(part for parts in zip(*alone) for part in parts))
    assert len(seen) == 1, (law, dim, runs, n)
"""


def test_bug_17_same_bits_for_any_threads_and_company():
    """1, 2, 3 and 8 threads, twice each, and run by run: few large runs, many small ones, and some in blocks."""
    cases = [("log", 2, 1, 3100), ("log", 2, 2, 3001), ("log", 5, 1, 3001), ("log", 2, 100, 150), ("log", 5, 3, 700),
             ("spring", 3, 2, 3001)]
    run_program(SAME_BITS.format(cases=cases, repeats=2), NUMBA_NUM_THREADS="8")


@pytest.mark.full
def test_bug_17_same_bits_a_hundred_times_in_twenty_states():
    laws = [(law, dim, 20) for law in ("log", "s=0.7", "s=1", "s=8") for dim in (1, 2, 5)]
    run_program(SAME_BITS.format(cases=[(*law, n) for law in laws for n in (1, 2, 3, 7, 64)], repeats=100),
                NUMBA_NUM_THREADS="8")
    run_program(SAME_BITS.format(cases=[(*law, 1000) for law in laws], repeats=2), NUMBA_NUM_THREADS="8")


INTERPRETED = """
import sys
import numpy as np
from test_pairs import cloud, energies, forces
found = {{}}
for law, dim in {cases}:
    for n in (1, 2, 3, 7, 20):
        for scale in (1.0, 1e40):  # the fast loops and the slower ones for extreme distances
            x = cloud(n, dim, runs=2) * scale
            found[f"{{law}} {{dim}} {{n}} {{scale}}"] = np.concatenate(
                [forces(x, law, *more).ravel() for more in ((), (0.1 * scale,), (0.0, 0.3 * scale))] + [energies(x, law)])
np.savez(sys.argv[1], **found)
"""


@pytest.mark.parametrize("cases", [
    [("log", 2), ("log", 5), ("s=0.7", 2), ("s=-1", 1), ("spring", 3)],
    pytest.param([("log", 1), ("log", 3), ("log", 4), *((law, dim) for law in LAWS for dim in (2, 5))],
                 marks=pytest.mark.full)], ids=["few", "all"])
def test_bug_17_compiled_and_interpreted_pair_sums_agree(tmp_path, cases):
    for name, compiled, interpreted in compiled_and_interpreted(INTERPRETED.format(cases=cases), tmp_path):
        assert_allclose(interpreted, compiled, rtol=1e-12, atol=1e-13 * np.abs(compiled).max(), err_msg=name)
