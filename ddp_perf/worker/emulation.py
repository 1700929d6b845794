"""The process group of an emulated case: its collectives take time, and it has no other rank.

Each collective ends when a model of the links says so, one after the other on one stream, as NCCL's
do, while the rank computes. So what hides communication, or waits for it, is the real code.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import queue
import random
import sys
import threading
import time
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch.futures import Future

from ddp_perf.config.network import Network, parse_network
from ddp_perf.core.launch import LaunchRequest
from ddp_perf.core.subject import CollectiveKind
from ddp_perf.stats.link import bus_factor, collective_s
from ddp_perf.torch_compat import wait_on_gpu, work_of
from ddp_perf.worker.counting.structure import tensors
from ddp_perf.worker.lone_group import LoneGroup, as_list

EMULATED = "emulated"  # the name of the backend


class Call(NamedTuple):
    """The time of one collective."""

    seconds: float  # from its start until its end
    busy_s: float  # of CPU time, which it takes meanwhile


class LinkModel:
    """The time of each collective over the links of a network."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._random = random.Random(0)  # the same delays in each launch

    def call(self, kind: CollectiveKind, payload: int, ranks: int) -> Call:
        """Return the time of a collective of so many bytes. The faster algorithm counts.

        The last of the ranks starts it: where their arrivals vary, that of each is exponential.
        """
        network = self._network
        seconds = min(
            collective_s(algorithm, kind, payload, ranks, network.topology)
            for algorithm in network.topology.algorithms
        )
        late_s = 0.0
        if network.jitter_s and ranks > 1:
            # That of the last one, which is later than a delay by the power of a uniform number.
            late = -math.expm1(math.log(1 - self._random.random()) / (ranks - 1))
            late_s = -network.jitter_s * math.log(late)
        sent = payload * bus_factor(kind, ranks) if ranks > 1 else 0.0
        return Call(seconds + late_s, sent * network.busy_s_per_byte)


class Wire(Protocol):
    """A communication stream: what is sent on it ends one after the other."""

    def send(self, call: Call, result: list[Any]) -> Future[Any]:
        """Begin a collective when the one before has ended; return its future."""
        ...


class EmulatedGroup(LoneGroup):
    """A group whose collectives take the time of a model, one after the other."""

    def __init__(self, rank: int, size: int, model: LinkModel, wire: Wire, device: str) -> None:
        super().__init__(rank, size, device)
        self._model, self._wire = model, wire

    def work(self, kind: CollectiveKind, args: tuple[Any, ...]) -> dist.Work:
        payload = max(_bytes(args[0]), _bytes(args[1]) if len(args) > 1 else 0)
        call = self._model.call(kind, payload, self.size())
        return work_of(self._wire.send(call, as_list(args[0])))


def _bytes(value: Any) -> int:
    return sum(tensor.nbytes for tensor in tensors(value))


def register_emulation(request: LaunchRequest) -> bool:
    """Let torch make the groups of an emulated case by the name EMULATED; False: it is none.

    The values of its network are those of the launch: each round draws others.
    """
    if request.case.network is None:
        return False
    network = parse_network(request.case.network, "network:").drawn(request.round)
    register_network(network, on_gpu=request.case.tier == "gpu")
    return True


def register_network(network: Network, *, on_gpu: bool = False) -> None:
    """Let torch make groups by the name EMULATED over this network."""
    model = LinkModel(network)

    def make(store: dist.Store, rank: int, size: int, timeout: Any) -> EmulatedGroup:
        wire = DelayKernels(torch.cuda.current_device()) if on_gpu else TimedWire()
        return EmulatedGroup(rank, size, model, wire, "cuda" if on_gpu else "cpu")

    dist.Backend.register_backend(EMULATED, make, devices=["cuda" if on_gpu else "cpu"])


# On a CPU: a thread sleeps until a collective ends, and takes the CPU time of a real one.


_SLICE_S = 1e-3  # of a collective, in which it computes and sleeps
_SLICE = 16_384  # elements: too few for torch to share them between threads
_PR_SET_TIMERSLACK = 29


class TimedWire:
    """A thread that ends collectives at their time. It holds Python's lock for microseconds."""

    def __init__(self) -> None:
        self._sent: queue.SimpleQueue[tuple[float, Call, Future[Any], list[Any]]] = (
            queue.SimpleQueue()
        )
        threading.Thread(target=self._run, name="emulated link", daemon=True).start()

    def send(self, call: Call, result: list[Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self._sent.put((time.perf_counter(), call, future, result))
        return future

    def _run(self) -> None:
        _sleep_exactly()
        burn = _Burner()
        free_at = 0.0
        while True:
            begun, call, future, result = self._sent.get()
            start = max(begun, free_at)
            free_at = start + call.seconds
            if call.busy_s:
                burn(start, call)
                free_at = max(free_at, time.perf_counter())
            if (left_s := free_at - time.perf_counter()) > 0:
                time.sleep(left_s)
            future.set_result(result)


def _sleep_exactly() -> None:
    """Let this thread wake at its time: by default Linux wakes it up to 50 µs later."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)


class _Burner:
    """CPU time of this thread: sums of tensors, like those of a reduction, without Python's lock.

    It is spread over a collective evenly. On a busy core the collective may end later for it, as a
    real one does.
    """

    def __init__(self) -> None:
        slices = torch.zeros(64 * _SLICE).chunk(64)
        self._slices = itertools.cycle(itertools.pairwise(slices))

    def __call__(self, start: float, call: Call) -> None:
        begun, share = time.thread_time(), call.busy_s / max(call.seconds, call.busy_s)
        spent = 0.0
        while spent < call.busy_s:
            due = share * (time.perf_counter() - start + _SLICE_S)
            if spent >= min(due, call.busy_s):
                time.sleep(_SLICE_S)
                continue
            target, source = next(self._slices)
            target.add_(source)
            spent = time.thread_time() - begun


# On a GPU: a kernel that only waits, on a stream of its own.


_CALIBRATED = 10_000_000  # cycles


class DelayKernels:
    """A stream of kernels that wait, as long as the collectives of a real one take."""

    def __init__(self, index: int) -> None:
        self._device = device = torch.device("cuda", index)
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._cycles_per_s = cycles_per_s(device)

    def send(self, call: Call, result: list[Any]) -> Future[Any]:
        future: Future[Any] = Future(devices=[self._device])
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            wait_on_gpu(int(call.seconds * self._cycles_per_s))
            future.set_result(result)  # whoever waits for it waits for this stream
        return future


@functools.cache
def cycles_per_s(device: torch.device) -> float:
    """Return how many cycles of a waiting kernel are a second, by events around one."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    for _ in range(2):  # the first one wakes the GPU
        begin.record()
        wait_on_gpu(_CALIBRATED)
        end.record()
        end.synchronize()
    milliseconds: float = begin.elapsed_time(end)
    return 1000 * _CALIBRATED / milliseconds
