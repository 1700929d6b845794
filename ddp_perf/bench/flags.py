"""The flags of document 001's program, the position of a process, and the case of both."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NoReturn

import msgspec

from ddp_perf.config.cases import Variant, cases_of
from ddp_perf.config.loading import check_environment, checked_suite
from ddp_perf.core.case import Case
from ddp_perf.errors import ConfigError, LaunchError
from ddp_perf.render.units import counted

# The position of this process among the ranks, from the variables that torchrun sets.


_NUMBERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE")


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a rank, and of all ranks and nodes; by default a process by itself."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    nodes: int = 1
    alone: bool = True
    states_nodes: bool = True  # False: nothing states the nodes, and one is assumed


def position_of(environ: Mapping[str, str]) -> Position:
    """Return the position of this process. Without RANK it is alone.

    Raises LaunchError if nodes have different numbers of ranks, or variables lack.
    """
    if "RANK" not in environ:
        return Position()
    wrong = [name for name in _NUMBERS if not environ.get(name, "").isdecimal()]
    if wrong:
        raise LaunchError(
            f"RANK is set, and {', '.join(wrong)} is missing or no number: start the ranks by"
            " torchrun, or unset RANK"
        )
    world_size = int(environ["WORLD_SIZE"])
    ranks_here = int(environ.get("LOCAL_WORLD_SIZE", world_size))
    nodes = int(environ.get("GROUP_WORLD_SIZE", world_size // ranks_here))
    if nodes * ranks_here != world_size:
        raise LaunchError(
            f"this node has {ranks_here} of {counted(world_size, 'rank')} on {nodes} nodes; give"
            " torchrun the same --nproc_per_node on each node"
        )
    return Position(
        rank=int(environ["RANK"]),
        local_rank=int(environ["LOCAL_RANK"]),
        world_size=world_size,
        nodes=nodes,
        alone=False,
        states_nodes=not {"LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"}.isdisjoint(environ),
    )


def position_on(position: Position, hosts: Sequence[str]) -> Position:
    """Return the position with the number of nodes that the hosts of all ranks show, by rank.

    Raises LaunchError if the hosts have different numbers of ranks, or ranks in turn.
    """
    nodes = len(set(hosts))
    ranks_here = position.world_size // nodes
    blocks = [set(hosts[first : first + ranks_here]) for first in range(0, len(hosts), ranks_here)]
    if len(blocks) != nodes or any(len(block) > 1 for block in blocks):
        raise LaunchError(
            f"the ranks run on {', '.join(hosts)}: give each host as many, one after the other; or"
            " start the ranks by torchrun"
        )
    return msgspec.structs.replace(position, nodes=nodes)


# The flags of document 001's program, and the case that they describe.


Device = Literal["cuda", "cpu"]
_BACKENDS = {"cuda": "nccl", "cpu": "gloo"}
_TRACES = "artifacts/profile/bench"
_ABOUT = """\
Train a feed-forward network on synthetic data with DistributedDataParallel, and print where each
rank ran and how long its steps took. Start it with torchrun, with python -m torch.distributed.run,
or by itself as one process, which trains without DDP.
"""
_SUITE = """\
A suite measures the same with the same code, and also judges it: it launches each case several
times, with fresh processes, beside one rank, and compares the figures with a baseline. The suite of
these defaults is bench_configs/mlp_scaling.yaml: pytest -m gpu --ddp-config=FILE.
"""


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """The values of the flags, with the device that was chosen."""

    epochs: int
    steps_per_epoch: int
    warmup_steps: int
    batch_size: int
    input_dim: int
    hidden_dim: int
    output_dim: int
    num_layers: int
    bucket_cap_mb: float
    broadcast_buffers: bool
    static_graph: bool
    device: Device
    profile: str | None


class FlagParser(argparse.ArgumentParser):
    """A parser whose errors are a ConfigError: one rank prints them, not each one."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def make_parser() -> FlagParser:
    """Return the parser. The help of a flag names what a suite has for it."""
    parser = FlagParser(
        prog="python -m ddp_perf.bench", description=_ABOUT, epilog=_SUITE, allow_abbrev=False
    )
    _add_loop(parser)
    _add_model(parser)
    ddp = parser.add_argument_group("DistributedDataParallel (in a suite: ddp)")
    ddp.add_argument(
        "--bucket-cap-mb",
        type=_size,
        default=50.0,
        metavar="MIB",
        help="size of a gradient bucket (default: 50; in a suite: bucket_cap_mb)",
    )
    ddp.add_argument(
        "--broadcast-buffers",
        action="store_true",
        help="broadcast rank 0's buffers in every forward (in a suite: broadcast_buffers)",
    )
    ddp.add_argument(
        "--no-static-graph",
        dest="static_graph",
        action="store_false",
        help="do not state that the graph is the same in every step (in a suite: static_graph)",
    )
    _add_machine(parser)
    return parser


def _add_loop(parser: argparse.ArgumentParser) -> None:
    loop = parser.add_argument_group("loop")
    loop.add_argument(
        "--epochs",
        type=_count,
        default=3,
        metavar="N",
        help="epochs (default: 3; a suite has none: its steps are the steps of all epochs)",
    )
    loop.add_argument(
        "--steps-per-epoch",
        type=_count,
        default=20,
        metavar="N",
        help="steps of an epoch (default: 20; in a suite: steps, or --ddp-steps, of all epochs)",
    )
    loop.add_argument(
        "--warmup-steps",
        type=_count_or_0,
        default=5,
        metavar="N",
        help="unmeasured first steps of all (default: 5; in a suite: warmup); as in a suite, a GPU"
        " first runs until its step time is steady",
    )
    loop.add_argument(
        "--batch-size",
        type=_count,
        default=256,
        metavar="N",
        help="samples of each rank in a step (default: 256; in a suite: batch_sizes, or"
        " --ddp-batch-sizes, each size as a case of its own)",
    )


def _add_model(parser: argparse.ArgumentParser) -> None:
    model = parser.add_argument_group("network (in a suite: model)")
    for flag, default, what in (
        ("--input-dim", 4096, "features of a sample (default: 4096; in a suite: input_dim)"),
        (
            "--hidden-dim",
            4096,
            "width of a hidden layer (default: 4096; in a suite: hidden_dim)",
        ),
        ("--output-dim", 2048, "outputs of a sample (default: 2048; in a suite: output_dim)"),
        ("--num-layers", 3, "linear layers (default: 3; in a suite: num_layers)"),
    ):
        model.add_argument(flag, type=_count, default=default, metavar="N", help=what)


def _add_machine(parser: argparse.ArgumentParser) -> None:
    machine = parser.add_argument_group("machine")
    machine.add_argument(
        "--device",
        choices=("cuda", "cpu"),
        help="default: cuda if torch sees a GPU, else cpu (in a suite: tier; it skips its cases"
        " where GPUs are missing)",
    )
    machine.add_argument(
        "--backend",
        choices=("nccl", "gloo"),
        help="the backend of the device: nccl for cuda, gloo for cpu (a suite chooses it so)",
    )
    machine.add_argument(
        "--profile",
        nargs="?",
        const=_TRACES,
        metavar="DIR",
        help=f"write a trace of 3 more steps of each rank to DIR (default: {_TRACES}; in a suite:"
        " --ddp-profile, which also analyses them)",
    )


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _count_or_0(text: str) -> int:
    return 0 if text == "0" else _count(text)


def _size(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of MiB above 0, up to 1e6")
    return value


def parse_flags(arguments: Sequence[str], has_gpu: Callable[[], bool]) -> Flags:
    """Return the flags; ``has_gpu`` is called only if they leave the device open or need a GPU.

    Raises ConfigError for flags that cannot be run, and SystemExit after --help.
    """
    values = vars(make_parser().parse_args(arguments))
    given, backend = values.pop("device"), values.pop("backend")
    device: Device = "cpu" if given == "cpu" or not has_gpu() else "cuda"
    if given == "cuda" and device == "cpu":
        raise ConfigError("--device cuda: torch sees no GPU; make one visible, or use --device cpu")
    if backend not in (None, _BACKENDS[device]):
        other = "cpu" if device == "cuda" else "cuda"
        raise ConfigError(
            f"--backend {backend}: the ranks run on {device}, over {_BACKENDS[device]}; leave the"
            f" flag out, or add --device {other}"
        )
    flags = Flags(**values, device=device)
    steps = flags.epochs * flags.steps_per_epoch
    if flags.warmup_steps >= steps:
        raise ConfigError(
            f"--warmup-steps {flags.warmup_steps}: nothing is left to measure of {steps} steps in"
            f" all ({flags.epochs} × {flags.steps_per_epoch}); lower it"
        )
    return flags


def benchmark_case(flags: Flags, position: Position, environ: Mapping[str, str]) -> Case:
    """Return the case of a suite that has these flags as its fields. Raises ConfigError."""
    threads = environ.get("OMP_NUM_THREADS", "1")
    suite = checked_suite(
        {
            "suite": "bench",
            "tier": "gpu" if flags.device == "cuda" else "cpu",
            "workload": "mlp",
            "model": {
                name: getattr(flags, name)
                for name in ("input_dim", "hidden_dim", "output_dim", "num_layers")
            },
            "ddp": {
                "bucket_cap_mb": flags.bucket_cap_mb,
                "broadcast_buffers": flags.broadcast_buffers,
                "static_graph": flags.static_graph,
                "gradient_as_bucket_view": True,
            },
            "world_sizes": [position.world_size],
            "batch_sizes": [flags.batch_size],
            "steps": flags.epochs * flags.steps_per_epoch,
            "warmup": flags.warmup_steps,
            "launches": 1,
            "env": {} if threads == "1" else {"OMP_NUM_THREADS": threads},
        }
    )
    (case,) = cases_of(Variant(suite=suite))
    check_environment(case.env)
    return msgspec.structs.replace(case, nodes=position.nodes)
