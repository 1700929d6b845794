"""Check the law of strong scaling on held-out points: published, simulated, and of gloo ranks.

    python benchmarks/strong_scaling.py [--seed N] [--trials N] [--gloo]

The error of the law was chosen on every second table of the published curves: the smallest one
with 90 % of the held-out points in their bands. The other tables are the check.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import msgspec
import numpy as np

from benchmarks.bounds import with_interval
from benchmarks.extrapolation import (
    ONE_LINK,
    HeldOut,
    Truth,
    coverage,
    figures,
    held_out,
    inside_text,
)
from ddp_perf.scaling.laws import STRONG_ERROR, Law, ScalingPoint, alpha_beta_laws, unknown_shape

DATA = Path(__file__).parent / "data" / "strong_scaling.json"
ERRORS = (0.005, 0.01, 0.015, 0.02, 0.03)
WHOLE = unknown_shape("ddp")
SEED = 18_000_001
TRIALS = 100


class Curve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The throughput of one batch by the number of GPUs that share it."""

    document: str
    where: str
    precision: str
    global_batch: int
    unit: str
    throughput: dict[int, float]

    @property
    def table(self) -> tuple[str, str]:
        return self.document, self.where

    def points(self, law_error: float) -> list[ScalingPoint]:
        """Return the steps. Their unit is arbitrary where the throughput does not count samples."""
        return [
            ScalingPoint(world_size=n, step_s=self.global_batch / rate, law_error=law_error)
            for n, rate in self.throughput.items()
        ]


def published() -> list[Curve]:
    return msgspec.convert(json.loads(DATA.read_text())["curves"], list[Curve], strict=False)


def largest(curve: Curve, law_error: float) -> list[HeldOut]:
    """Fit a curve without its largest size, and predict that one."""
    points = curve.points(law_error)
    sizes = [point.world_size for point in points[:-1]]
    return list(held_out(points, WHOLE, sizes, strong=True))


def halves(curves: Sequence[Curve]) -> tuple[list[Curve], list[Curve]]:
    """Return the curves of every second table, and the others. One table is never in both."""
    groups = [list(group) for _, group in itertools.groupby(curves, lambda curve: curve.table)]
    first, second = (list(itertools.chain(*groups[start::2])) for start in (0, 1))
    return first, second


def by_error(curves: Sequence[Curve]) -> Iterator[str]:
    """Yield the share of held-out points in their bands for each error of the law."""
    for error in ERRORS:
        found = [one for curve in curves for one in largest(curve, error) if one.law == "α-β"]
        inside = sum(one.is_inside for one in found)
        width = np.median([(one.high_s - one.low_s) / 2 / one.predicted_s for one in found])
        off = np.median([abs(one.predicted_s / one.given_s - 1) for one in found])
        shown = with_interval(inside, len(found), 0)
        yield (
            f"  error {error:.1%}: {inside} of {len(found)} inside: {shown} %,"
            f" median ± {width:.0%}, off by {off:.0%}"
        )


Compute = Callable[[int], float]  # ranks → seconds, of a second on one rank


def linear(random: np.random.Generator) -> Compute:
    """Draw the model's own: a fixed part of 1 to 30 %, and one that shrinks."""
    fixed = _log_uniform(random, 0.01, 0.3)
    return lambda ranks: fixed + (1 - fixed) / ranks


def floor(random: np.random.Generator) -> Compute:
    """Draw a GPU that is full down to some batch, and whose launches then take 1 to 30 %."""
    least = _log_uniform(random, 0.01, 0.3)
    return lambda ranks: max(least, 1 / ranks)


def power(random: np.random.Generator) -> Compute:
    """Draw compute that shrinks by a power of the batch, between 0.7 and 1."""
    exponent = random.uniform(0.7, 1.0)
    return lambda ranks: float(ranks**-exponent)


def with_communication(compute: Callable[[np.random.Generator], Compute]) -> Truth:
    """Add a ring or a tree: latency and bandwidth of 0.1 to 10 % of a second each, at 8 ranks."""

    def draw(random: np.random.Generator) -> Callable[[int], float]:
        computed = compute(random)
        laws: list[Law] = alpha_beta_laws(WHOLE, ONE_LINK)
        law = laws[int(random.integers(len(laws)))]
        first, second = law.rows(8)[0, :2]
        latency, bandwidth = (_log_uniform(random, 0.001, 0.1) for _ in range(2))
        terms = np.array([[0.0], [latency / first], [bandwidth / second]])
        return lambda ranks: computed(ranks) + float(law.step_s(terms, ranks)[0])

    return draw


def _log_uniform(random: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(random.uniform(np.log(low), np.log(high))))


def simulated(seed: int, trials: int) -> Iterator[str]:
    """Yield a row of coverage for each truth and noise."""
    for compute, noise in itertools.product((linear, floor, power), (0.005, 0.02)):
        name = f"{compute.__name__}, {noise:.1%}, stated"
        truth, measure = with_communication(compute), figures(noise, stated=True)
        yield coverage(name, truth, WHOLE, measure, seed, strong=True, trials=trials)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gloo", action="store_true", help="real ranks over a limited link, too")
    parser.add_argument("--seed", type=int, default=SEED, help="of the simulations (%(default)s)")
    parser.add_argument("--trials", type=int, default=TRIALS, help="of each row (%(default)s)")
    options = parser.parse_args()
    curves = published()
    print("Published curves, fitted without the largest size:")
    points: list[HeldOut] = []
    for curve in curves:
        print(f" {curve.document}, {curve.where}: {curve.precision}")
        of_curve = largest(curve, STRONG_ERROR)
        print(*of_curve, sep="\n")
        points += of_curve
    print(inside_text(points))
    for name, half in zip(("chosen on", "checked on"), halves(curves), strict=True):
        print(f" {name}, {len(half)} curves:", *by_error(half), sep="\n")
    print(f"Simulated, fitted on 1, 2, 4, 8 ranks: bands of 90 % that hold, of {options.trials}")
    print("trials (95 % interval), and the median half width:")
    for row in simulated(options.seed, options.trials):
        print(row, flush=True)
    if options.gloo:
        from benchmarks.limited_link import gloo_curve

        print("Real gloo ranks over a limited link, fitted on up to 8 ranks:")
        shape, series = gloo_curve(strong=True)
        series = [msgspec.structs.replace(point, law_error=STRONG_ERROR) for point in series]
        points = list(held_out(series, shape, strong=True))
        print(*points, inside_text(points), sep="\n")


if __name__ == "__main__":
    main()
