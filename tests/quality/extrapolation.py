"""Check the scaling laws on held-out points: published, simulated, and of real gloo ranks.

    python tests/quality/extrapolation.py [--gloo]     --gloo: real ranks over a limited link

What decides, the α-β model, was chosen before; the others are shown beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.scaling.curves import ScalingCurve, published_series
from ddp_perf.scaling.fit import fit_laws
from ddp_perf.scaling.laws import Law, alpha_beta_laws, amdahl
from ddp_perf.scaling.points import UNSTATED_ERROR, ScalingPoint
from ddp_perf.scaling.shape import StepShape, ddp_shape, in_buckets, unknown_shape
from ddp_perf.stats.link.model import Link, Topology, flat

BASELINES = Path(__file__).parents[2] / "baselines"
ONE_LINK = flat(Link(latency_s=1.0, bytes_per_s=1.0))
FITTED = (1, 2, 4, 8)
TRIALS = 300
SEED = 20_250_115


class HeldOut(msgspec.Struct, frozen=True, kw_only=True):
    """A point that the fit did not see."""

    law: str
    world_size: int
    given_s: float
    predicted_s: float
    low_s: float
    high_s: float

    def __str__(self) -> str:
        inside = "inside" if self.low_s <= self.given_s <= self.high_s else "OUTSIDE"
        return (
            f"  {self.law:8} {self.world_size:4} ranks: given {self.given_s * 1e3:7.2f} ms,"
            f" predicted {self.predicted_s * 1e3:7.2f}"
            f" ({self.predicted_s / self.given_s - 1:+.1%}),"
            f" 90 % band {self.low_s * 1e3:.2f} to {self.high_s * 1e3:.2f}"
            f" (± {(self.high_s - self.low_s) / 2 / self.predicted_s:.1%}): {inside}"
        )


def held_out(series: Sequence[ScalingPoint], shape: StepShape) -> Iterator[HeldOut]:
    """Fit on up to 8 ranks, and return the prediction of the other points."""
    fitted = [point for point in series if point.world_size in FITTED]
    others = [point for point in series if point.world_size not in FITTED]
    laws: dict[str, list[Law]] = {
        "α-β": alpha_beta_laws(shape, ONE_LINK),
        "Amdahl": [amdahl()],
    }
    for name, of_name in laws.items():
        fit = fit_laws(of_name, fitted)
        for point in others:
            band = fit.predict(point.world_size)
            yield HeldOut(
                law=name,
                world_size=point.world_size,
                given_s=point.step_s,
                predicted_s=band.value,
                low_s=band.low,
                high_s=band.high,
            )


def published() -> Iterator[ScalingCurve]:
    """Return every published curve that has points beyond the fitted ones."""
    store = BaselineStore(BASELINES)
    structures = store.structures_by_case()
    for path in sorted(BASELINES.glob("*.json")):
        for table in store.load(path.stem).published:
            for series in published_series(table, structures):
                sizes = {point.world_size for point in series.points}
                if len(sizes & set(FITTED)) >= 2 and sizes - set(FITTED):
                    yield series


def sensitivity(series: ScalingCurve) -> Iterator[str]:
    """Return how the band depends on the error that is assumed for figures without a spread."""
    fitted = [point for point in series.points if point.world_size in FITTED]
    largest = series.points[-1]
    for error in (UNSTATED_ERROR, 0.007, 0.01):
        stated = (error**2 - UNSTATED_ERROR**2) ** 0.5
        sure = [msgspec.structs.replace(point, error=stated) for point in fitted]
        band = fit_laws(alpha_beta_laws(series.work.shape, ONE_LINK), sure).predict(
            largest.world_size
        )
        yield (
            f"  error {error:.1%}: {largest.world_size} ranks ± {band.half_width:.1%},"
            f" {'inside' if band.contains(largest.step_s) else 'OUTSIDE'}"
        )


Truth = Callable[[np.random.Generator], Callable[[int], float]]


def coverage(name: str, truth: Truth, shape: StepShape, noise: float, stated: bool = False) -> str:
    """Measure how often the band contains a new measurement of a known truth.

    ``stated``: each point with a standard error estimated from five launches, as measured ones.
    """
    random = np.random.default_rng(SEED)
    asked = (16, 32, 256)
    held: dict[int, int] = dict.fromkeys(asked, 0)
    widths: dict[int, list[float]] = {ranks: [] for ranks in asked}
    for _ in range(TRIALS):
        step_s = truth(random)

        seen = [
            ScalingPoint(
                world_size=ranks,
                step_s=step_s(ranks) * float(np.exp(random.normal(0, noise))),
                error=noise * float(np.sqrt(random.chisquare(4) / 4)) if stated else 0.0,
            )
            for ranks in FITTED
        ]
        fit = fit_laws(alpha_beta_laws(shape, ONE_LINK), seen)
        for ranks in asked:
            band = fit.predict(ranks)
            held[ranks] += band.contains(step_s(ranks) * float(np.exp(random.normal(0, noise))))
            widths[ranks].append(band.half_width)
    shown = ", ".join(
        f"{ranks}: {held[ranks] / TRIALS:.0%} (± {np.median(widths[ranks]):.0%})" for ranks in asked
    )
    return f"  {name:43} noise {noise:.1%} {'error stated' if stated else ''}: {shown}"


def flat_truth(shape: StepShape) -> Truth:
    """Draw a ring or a tree over one link; communication of 1 to 30 % of the step at 8 ranks, split
    between latency and bandwidth in any way, with any overlap.
    """

    def draw(random: np.random.Generator) -> Callable[[int], float]:
        law = random.choice(np.array(alpha_beta_laws(shape, ONE_LINK), dtype=object))
        part, latency = np.exp(random.uniform(np.log(0.01), np.log(0.3))), random.uniform()
        first, second = law.rows(8)[0, :2]
        terms = np.array([[1 - part], [part * latency / first], [part * (1 - latency) / second]])
        return lambda ranks: float(law.step_s(terms, ranks)[0])

    return draw


def slower_between_nodes(random: np.random.Generator) -> Callable[[int], float]:
    """Draw a link between nodes of eight ranks. The fit has points of one node only."""
    near = Link(latency_s=1.0, bytes_per_s=6.0)
    topology = Topology(gpus_per_node=8, intra=near, inter=Link(latency_s=2.5, bytes_per_s=1.0))
    law = alpha_beta_laws(unknown_shape("ddp"), topology)[int(random.integers(3))]
    part = np.exp(random.uniform(np.log(0.01), np.log(0.3)))
    second = law.rows(8)[0, 1]
    terms = np.array([[1 - part], [0.0], [part / second]])
    return lambda ranks: float(law.step_s(terms, ranks)[0])


def main() -> None:
    print("Published curves, fitted on up to 8 ranks:")
    for series in published():
        print(f" {series.where}: {series.label}")
        for point in held_out(series.points, series.work.shape):
            print(point)
        print(*sensitivity(series), sep="\n")
    print(f"Simulated, fitted on 1, 2, 4, 8 ranks: bands of 90 % that hold ({TRIALS} trials each)")
    whole, buckets = unknown_shape("ddp"), ddp_shape(in_buckets(100.0, 25.0))
    name = "one link, gradients together"
    for noise in (0.002, 0.005, 0.01):
        print(coverage(name, flat_truth(whole), whole, noise))
    for noise in (0.01, 0.02):
        print(coverage(name, flat_truth(whole), whole, noise, stated=True))
    for noise in (0.005, 0.02):
        name = "one link, 4 buckets, unknown overlap"
        print(coverage(name, flat_truth(buckets), buckets, noise, stated=True))
    name = "6 times slower between nodes, not stated"
    print(coverage(name, slower_between_nodes, whole, 0.005))
    if "--gloo" in sys.argv[1:]:
        from tests.quality.limited_link import gloo_curve

        print("Real gloo ranks over a limited link, fitted on up to 8 ranks:")
        shape, curve = gloo_curve()
        for point in held_out(curve, shape):
            print(point)


if __name__ == "__main__":
    main()
