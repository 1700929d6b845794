"""The file of a fleet: its nodes, the cases, what must be found, and how many false alarms."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ddp_perf.config.error_text import describe_error
from ddp_perf.config.yaml_file import read_yaml
from ddp_perf.core.case import Fraction
from ddp_perf.errors import ConfigError
from ddp_perf.stats.fleet import LEAST_NODES

Count = Annotated[int, Meta(ge=1, le=2**20)]
Positive = Annotated[float, Meta(gt=0, le=1e9)]
Sd = Annotated[float, Meta(ge=0, lt=1, description="sd of logs: 0.01 is 1 %")]
MOST_NIGHTS = 60  # that a plan follows
Nights = Annotated[int, Meta(ge=1, le=MOST_NIGHTS)]


class FleetNodes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The nodes, their price, and how long they may be measured."""

    nodes: Annotated[int, Meta(ge=LEAST_NODES, le=2**20)]
    gpus_per_node: Count = 8
    accelerator: str
    gpu_minutes_per_night: Annotated[
        Positive, Meta(description="GPUs × minutes that a night may take, on average of a week.")
    ]
    price_per_gpu_hour: Positive | None = None

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node


class StatedNoise(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The spread of a step time where nothing changed, as sds of logs."""

    launch: Annotated[
        Sd | None, Meta(description="From launch to launch of a node. null: by the baseline.")
    ] = None
    session: Annotated[
        Sd | None,
        Meta(description="From night to night, of all nodes alike. null: by the baseline."),
    ] = None
    node: Annotated[Sd, Meta(description="From node to node, for good.")]
    visit: Annotated[Sd, Meta(description="From night to night, of each node by itself.")]


class FleetCase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One case, at each number of nodes on which it runs."""

    name: str
    nodes: Annotated[tuple[Count, ...], Meta(min_length=1)] = (1,)
    launch_s: Annotated[
        Positive,
        Meta(
            description="Seconds of one launch, from start to end; if efficiency is gated, with"
            " those of the launch of one rank beside it, which occupies the node as long."
        ),
    ]
    metrics: Annotated[Count, Meta(description="Gated metrics: each has a verdict.")] = 1
    tolerance: Fraction = 0.02
    noise: StatedNoise
    baseline: Annotated[
        str | None, Meta(description="A baseline file that measured launches and sessions.")
    ] = None
    case: Annotated[str | None, Meta(description="The id of the case in that file.")] = None


class Aim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A slow-down that must be found within a number of nights."""

    slower: Fraction
    nights: Nights


class Aims(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The slow-downs that must be found, and with which probability."""

    code: Aim
    node: Aim
    probability: Annotated[float, Meta(ge=0.5, lt=1)] = 0.9


class MonthlyAlarms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The acceptable false alarms a month of 30 nights."""

    code: Annotated[float, Meta(gt=0, le=10)] = 0.3
    node: Annotated[float, Meta(gt=0, le=10)] = 0.3


class FleetFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a file of a fleet."""

    fleet: FleetNodes
    cases: Annotated[tuple[FleetCase, ...], Meta(min_length=1)]
    find: Aims
    false_alarms_per_month: MonthlyAlarms = MonthlyAlarms()


def read_fleet(path: Path) -> FleetFile:
    """Read and check a file of a fleet. Raises ConfigError with the field and the remedy."""
    data: Any = None
    try:
        data = read_yaml(path)
        found = msgspec.convert(data, FleetFile)
        _check_cases(found)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {describe_error(error, FleetFile, data)}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return found


def fleet_schema() -> dict[str, Any]:
    """Return the JSON Schema of files of a fleet, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ddp-perf fleet",
        **msgspec.json.schema(FleetFile),
    }


def _check_cases(file: FleetFile) -> None:
    """Raise ConfigError for what the types do not check."""
    names = [case.name for case in file.cases]
    for number, case in enumerate(file.cases):
        field = f"cases[{number}]"
        if names.count(case.name) > 1:
            raise ConfigError(f"{field}.name: {case.name!r} is the name of two cases")
        if len(set(case.nodes)) < len(case.nodes):
            raise ConfigError(f"{field}.nodes: a number is listed twice; remove one")
        if max(case.nodes) > file.fleet.nodes:
            raise ConfigError(
                f"{field}.nodes: {max(case.nodes)} are more than the fleet's {file.fleet.nodes}"
            )
        if case.baseline is None and None in (case.noise.launch, case.noise.session):
            raise ConfigError(
                f"{field}.noise: launch and session are needed, or a baseline that measured them"
            )
        if (case.baseline is None) != (case.case is None):
            raise ConfigError(f"{field}: baseline and case go together; give both or neither")
    if not any(1 in case.nodes for case in file.cases):
        raise ConfigError("cases: one must run on one node (nodes: [1, …]), to judge each node")
