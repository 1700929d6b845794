"""Suite files of collectives, measured over a matrix of payload sizes and world sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from ddp_perf.config.common import Experiment
from ddp_perf.config.layout import layout_name, node_count
from ddp_perf.core.case import Case, Fraction, Tolerances
from ddp_perf.core.collective import (
    FLOAT32,
    CollectiveKind,
    CollectiveStep,
    calls_of,
    parse_size,
    size_text,
)
from ddp_perf.errors import ConfigError

SizeText = Annotated[str, Meta(pattern="^[1-9][0-9]{0,3}(KiB|MiB|GiB)$")]


class CollectiveTolerances(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The change of each metric that is tolerated, as a fraction. null: not gated."""

    step_time: Annotated[
        Fraction, Meta(description="Level of the calls of a step: the fastest of ten clean ones.")
    ] = 0.05
    tail: Annotated[
        Fraction | None, Meta(description="Mean step ÷ its level. It shows calls that stall.")
    ] = 0.05


class CollectivesSuite(Experiment, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A suite that measures collectives without a model: the link and its library."""

    collectives: Annotated[
        list[CollectiveKind],
        Meta(min_length=1, description="The collectives to call, on float32 values."),
    ]
    sizes: Annotated[
        list[SizeText],
        Meta(
            min_length=1,
            description="Payloads of a call, counted as in nccl-tests: bytes of the whole tensor"
            " (a reduce-scatter's input, an all-gather's output). Whole KiB, MiB or GiB.",
        ),
    ]
    tolerances: Annotated[
        CollectiveTolerances,
        Meta(description="The tolerated change of each metric."),
    ] = CollectiveTolerances()


def collective_cases(
    suite: CollectivesSuite, env: Mapping[str, str], suffix: str, ranks_per_node: int | None
) -> list[Case]:
    """Return the cases, ordered by collective, then payload, then world size."""
    sizes = sorted(map(parse_size, suite.sizes))
    return [
        _case(
            suite, kind, payload, (world_size, node_count(world_size, ranks_per_node)), env, suffix
        )
        for kind, payload, world_size in itertools.product(
            suite.collectives, sizes, sorted(suite.world_sizes)
        )
    ]


def _case(
    suite: CollectivesSuite,
    kind: CollectiveKind,
    payload: int,
    layout: tuple[int, int],
    env: Mapping[str, str],
    suffix: str,
) -> Case:
    world_size, nodes = layout
    parts = [
        kind,
        layout_name(world_size, nodes),
        size_text(payload),
        *filter(None, [suite.variant]),
    ]
    return Case(
        id="-".join(parts) + suffix,
        suite=suite.suite,
        tier=suite.tier,
        workload=kind,
        collective=CollectiveStep(kind=kind, payload=payload, calls=calls_of(payload)),
        model={},
        strategy="none",
        ddp=None,
        precision="fp32",
        world_size=world_size,
        nodes=nodes,
        batch_size=None,
        env=dict(env),
        launcher=suite.launcher,
        schedule=suite.schedule(),
        tolerances=Tolerances(
            step_time=suite.tolerances.step_time,
            tail=suite.tolerances.tail,
            cpu_time=None,
            efficiency=None,
            peak_memory=None,
        ),
        single=None,
    )


def check_collectives(suite: CollectivesSuite) -> None:
    """Raise ConfigError for the first value that is not possible, with field and remedy."""
    for refusal in _refusals(suite):
        raise ConfigError(refusal)


def _refusals(suite: CollectivesSuite) -> Iterator[str]:
    if 1 in suite.world_sizes:
        yield "world_sizes: one rank has no other to exchange data with; take 2 or more"
    sizes = list(map(parse_size, suite.sizes))
    for size, world_size in itertools.product(sizes, suite.world_sizes):
        if sizes.count(size) > 1:
            yield f"sizes: {size_text(size)} is listed twice, so two cases have one id; remove one"
        if size % (FLOAT32 * world_size):
            yield (
                f"sizes: {size_text(size)} of float32 cannot be divided evenly among {world_size}"
                " ranks; choose another size or world size"
            )
