"""alpha and beta of collectives by least squares: exact on lines, refused on what is none."""

import math
import random

import pytest

from gpuprof.roofline.machine.latency_fit import LatencyFit, algorithm_fit, line_fit

SIZES = [4096 * 4**power for power in range(9)]


def fitted(found: LatencyFit | str) -> LatencyFit:
    assert isinstance(found, LatencyFit), found
    return found


def test_a_line_is_found_and_its_noise_is_said() -> None:
    alpha, beta = 12_000.0, 1 / 350
    fit = fitted(line_fit([(size, alpha + beta * size) for size in SIZES]))
    assert fit.alpha_ns == pytest.approx(alpha)
    assert fit.bytes_per_s == pytest.approx(350e9)
    assert fit.largest_error == pytest.approx(0, abs=1e-9)
    noise = random.Random(7)
    rough = [(size, (alpha + beta * size) * noise.uniform(0.9, 1.1)) for size in SIZES]
    fit = fitted(line_fit(rough))
    assert fit.alpha_ns == pytest.approx(alpha, rel=0.12)
    assert fit.beta_ns_per_byte == pytest.approx(beta, rel=0.12)
    # Against errors worked out here.
    errors = sorted(abs(fit.alpha_ns + fit.beta_ns_per_byte * size - ns) / ns for size, ns in rough)
    assert fit.typical_error == pytest.approx(errors[len(errors) // 2])
    assert fit.largest_error == pytest.approx(errors[-1])


def test_hops_and_links_of_ring_and_tree_over_several_numbers_of_ranks() -> None:
    hop, byte = 900.0, 1 / 180
    ring, tree = (
        [(size, n, hops(n) * hop + volume(n) * size * byte) for size in SIZES for n in (2, 4, 8, 6)]
        for hops, volume in (
            (lambda n: 2 * (n - 1), lambda n: 2 * (n - 1) / n),
            (lambda n: 2 * math.ceil(math.log2(n)), lambda n: 2.0),
        )
    )
    for algorithm, right, wrong in (("ring", ring, tree), ("tree", tree, ring)):
        fit = fitted(algorithm_fit("all-reduce", algorithm, right))  # type: ignore[arg-type]
        assert (fit.alpha_ns, fit.beta_ns_per_byte) == pytest.approx((hop, byte))
        assert fit.rank_counts == 4
        # Over several numbers of ranks the other algorithm's times are none of this one.
        other = algorithm_fit("all-reduce", algorithm, wrong)  # type: ignore[arg-type]
        assert isinstance(other, str) or other.typical_error > 0.03
    # One pass: half the steps and half the bytes.
    gather = [(size, 4, 3 * hop + 0.75 * size * byte) for size in SIZES]
    assert fitted(algorithm_fit("all-gather", "ring", gather)).alpha_ns == pytest.approx(hop)
    assert isinstance(algorithm_fit("all-gather", "tree", gather), str)


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ([], "0 sizes"),
        ([(4096, 10.0)], "1 size:"),
        ([(4096, 10.0), (8192, 20.0), (2**20, 30.0)], "3 sizes"),
        # The same size several times is one.
        ([(4096, 10.0)] * 9 + [(2**20, 30.0)], "2 sizes"),
        ([(1000 + i, 10.0 + i) for i in range(8)], "within a factor"),
        ([(size, 5000.0) for size in SIZES], "do not grow"),
        ([(size, 5e9 / size) for size in SIZES], "do not grow"),
        ([(size, float(size) ** 1.5) for size in SIZES], "faster than the size"),
        ([(0, 0.0), (4096, 0.0), (8192, 1.0), (2**20, 2.0), (2**22, 3.0)], "3 sizes"),
    ],
)
def test_what_is_no_line_has_no_alpha(times: list[tuple[int, float]], reason: str) -> None:
    found = line_fit(times)
    assert isinstance(found, str)
    assert reason in found


def test_one_rank_and_unknown_collectives_have_no_algorithm() -> None:
    assert isinstance(algorithm_fit("all-reduce", "ring", [(size, 1, 1.0) for size in SIZES]), str)
    assert isinstance(algorithm_fit("broadcast", "ring", [(size, 4, 1.0) for size in SIZES]), str)
    assert isinstance(algorithm_fit("gossip", "ring", [(size, 4, 1.0) for size in SIZES]), str)
