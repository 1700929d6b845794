"""The process group of an emulated case: its collectives take time, and it has no other rank.

Each collective ends when a model of the links says so, while the rank computes: one after the other
as NCCL's do, or two at once as gloo's. So what hides communication, or waits for it, is the real
code.
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
from collections.abc import Generator, Mapping
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch.futures import Future

from ddp_perf.config.network import Network, parse_network
from ddp_perf.core.launch import LaunchRequest
from ddp_perf.stats.link import ModelKind, bus_factor, fastest_s
from ddp_perf.torch_compat import wait_on_gpu, work_of
from ddp_perf.worker.counting.structure import tensors
from ddp_perf.worker.lone_group import LoneGroup, as_list

EMULATED = "emulated"  # the name of the backend
_GLOO_ROUND = 2**21  # bytes of each rank: two segments of gloo's at a time (allreduce.cc)
_NO_PARTNER = "an emulated rank has no partner for send and recv; measure this on real ranks"


class Call(NamedTuple):
    """The time of one collective by itself."""

    seconds: float
    latency_s: float = 0.0  # of these, without a byte on the link
    busy_s: float = 0.0  # of CPU time, which it takes meanwhile
    parts: int = 1  # one after the other, each with as many of its messages and bytes


class LinkModel:
    """The time of each collective over the links of a network."""

    def __init__(self, network: Network, seed: int = 0) -> None:
        self._network = network
        self._topology_of = functools.cache(network.topology_of)
        self._random = random.Random(seed)

    def call(
        self,
        kind: ModelKind,
        payload: int,
        ranks: range | tuple[int, ...],
        world_size: int | None = None,
        *,
        rounds: int = 1,
    ) -> Call:
        """Return the time of a collective of so many bytes between these of the ranks.

        It sends all of its messages in each of its rounds. The last of the ranks starts it: where
        their arrivals vary, that of each is exponential.
        """
        network, size = self._network, len(ranks)
        topology = self._topology_of(ranks, world_size or size)
        whole_s, once_s = fastest_s(kind, payload, size, topology)
        latency_s = rounds * once_s
        seconds = whole_s - once_s + latency_s
        late_s = 0.0
        if network.jitter_s and size > 1:
            # That of the last one, which is later than a delay by the power of a uniform number.
            late = -math.expm1(math.log(1 - self._random.random()) / (size - 1))
            late_s = -network.jitter_s * math.log(late)
        as_ring = "reduce_scatter" if kind == "all_to_all" else kind
        sent = payload * bus_factor(as_ring, size) if size > 1 else 0.0
        return Call(
            seconds + late_s,
            latency_s + late_s,
            sent * network.busy_s_per_byte,
            parts=rounds * (2 if kind == "all_reduce" else 1),  # a reduce-scatter, an all-gather
        )


class Wire(Protocol):
    """The link of one group, which takes the collectives in the order in which they are sent."""

    def send(self, call: Call, result: list[Any]) -> Future[Any]:
        """Take a collective, and return the future of its result."""
        ...


class EmulatedGroup(LoneGroup):
    """A group whose collectives take the time of a model.

    It chooses a wire by the device of a collective's tensors; a barrier takes the first one.
    """

    def __init__(self, rank: int, size: int, model: LinkModel, wires: Mapping[str, Wire]) -> None:
        super().__init__(rank, size, tuple(wires))
        self._model, self._wires = model, wires

    @functools.cached_property
    def _ranks(self) -> tuple[int, ...]:
        return tuple(dist.get_process_group_ranks(self))

    def work(self, kind: ModelKind, args: tuple[Any, ...]) -> dist.Work:
        device = next((one.device.type for one in tensors(args)), next(iter(self._wires)))
        if device == "cpu" and kind == "reduce_scatter":
            kind = "all_reduce"  # as gloo's, whose result it drops but for a share
        payload = max(_bytes(args[0]), _bytes(args[1]) if len(args) > 1 else 0)
        rounds = 1
        if device == "cpu" and kind == "all_reduce":
            rounds = max(1, math.ceil(payload / (len(self._ranks) * _GLOO_ROUND)))
        call = self._model.call(kind, payload, self._ranks, dist.get_world_size(), rounds=rounds)
        return work_of(self._wires[device].send(call, as_list(args[0])))

    def send(self, *args: Any, **kw: Any) -> dist.Work:
        raise RuntimeError(_NO_PARTNER)

    def recv(self, *args: Any, **kw: Any) -> dist.Work:
        raise RuntimeError(_NO_PARTNER)

    def recv_anysource(self, *args: Any, **kw: Any) -> dist.Work:
        raise RuntimeError(_NO_PARTNER)


def _bytes(value: Any) -> int:
    return sum(tensor.nbytes for tensor in tensors(value))


def register_emulation(request: LaunchRequest) -> bool:
    """Let torch make the groups of an emulated case by the name EMULATED; False: it is none."""
    if (network := network_of(request)) is None:
        return False
    register_network(network, seed=request.round, on_gpu=request.case.tier == "gpu")
    return True


def network_of(request: LaunchRequest) -> Network | None:
    """Return the network of a launch; None: its case is not emulated.

    Launches that are compared with each other draw the same values; each round of them draws
    others. A launch by itself takes the middle of each range.
    """
    if request.case.network is None:
        return None
    network = parse_network(request.case.network, "network:")
    return network.drawn(request.round) if request.paired else network


def register_network(network: Network, *, seed: int = 0, on_gpu: bool = False) -> None:
    """Let torch make groups by the name EMULATED over this network."""
    model = LinkModel(network, seed)

    def make(store: dist.Store, rank: int, size: int, timeout: Any) -> EmulatedGroup:
        wires: dict[str, Wire] = {"cpu": TimedWire()}
        if on_gpu:
            wires = {"cuda": DelayKernels(torch.cuda.current_device()), **wires}
        return EmulatedGroup(rank, size, model, wires)

    devices = ["cuda", "cpu"] if on_gpu else ["cpu"]
    dist.Backend.register_backend(EMULATED, make, devices=devices)


# On a CPU: a thread sleeps until a collective ends, and takes the CPU time of a real one.


_SLICE_S = 1e-3  # of a collective, in which it computes and sleeps
_SLICE = 16_384  # elements: too few for torch to share them between threads
_PR_SET_TIMERSLACK = 29


_LANES = 2  # collectives that a gloo group runs at a time: it has as many threads
_WAKE_S = 70e-6  # of a latency: a thread of gloo's wakes and acts, on an idle core
_ACTING = 0.6  # of that; the rest passes until the thread runs


class Link:
    """A connection, which sends requests and bytes in the order in which it is given them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free_at = 0.0

    def send(self, at: float, seconds: float) -> float:
        """Return when it has sent what it is given at a time, and sends for some seconds."""
        with self._lock:
            self._free_at = max(at, self._free_at) + seconds
            return self._free_at


class Wake(NamedTuple):
    """The wake of a thread: when it has acted on an idle core, and the CPU time of its rank."""

    at: float
    acted_at: float
    busy_s: float = 0.0  # until it is woken
    acting_s: float = 0.0


def transfer(link: Link, call: Call, at: float) -> Generator[Wake, float, None]:
    """Yield the wakes of a collective that begins at a time; each takes when a thread has acted.

    In each part a rank asks its neighbour for bytes, and they come. A request wakes a thread of
    gloo's, bytes wake two, one after the other. On a busy core that takes longer than in a latency.
    """
    latency_s = call.latency_s / call.parts
    waking_s = min(_WAKE_S, latency_s / 5)
    acting_s = _ACTING * waking_s if call.busy_s else 0.0
    one_way_s = (latency_s - 3 * waking_s) / 2
    bytes_s = max(call.seconds - call.latency_s, 0) / call.parts
    for _ in range(call.parts):
        asked_at = link.send(at, 0.0) + one_way_s
        at = yield Wake(asked_at, asked_at + waking_s, acting_s=acting_s)
        came_at = link.send(at, bytes_s) + one_way_s
        busy_s = call.busy_s / call.parts
        at = yield Wake(came_at, came_at + 2 * waking_s, busy_s, 2 * acting_s)


class _Sent(NamedTuple):
    at: float
    call: Call
    future: Future[Any]
    result: list[Any]


class TimedWire:
    """Threads that run the transfers of a gloo group: two at once, over one connection.

    What a future's callback waits for may be a collective of the same wire: so while a thread runs
    the callbacks of a collective, another one takes its lane.
    """

    def __init__(self) -> None:
        self._sent: queue.SimpleQueue[_Sent] = queue.SimpleQueue()
        self._lanes: queue.SimpleQueue[float] = queue.SimpleQueue()  # when each became free
        self._counting = threading.Lock()
        self._waiting = 0  # threads, for a lane
        self._link = Link()
        self._kernel: queue.SimpleQueue[Wake] = queue.SimpleQueue()
        threading.Thread(target=self._take_core, name="emulated kernel", daemon=True).start()
        for _ in range(_LANES):
            self._lanes.put(0.0)
            self._start()

    def send(self, call: Call, result: list[Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self._sent.put(_Sent(time.perf_counter(), call, future, result))
        return future

    def _start(self) -> None:
        threading.Thread(target=self._run, name="emulated link", daemon=True).start()

    def _run(self) -> None:
        _sleep_exactly()
        burn = _Burner()
        while True:
            self._count(1)
            free_at = self._lanes.get()
            self._count(-1)
            if not self._waiting:
                self._start()  # before it takes a collective, which the next one would overtake
            sent = self._sent.get()
            wakes = transfer(self._link, sent.call, max(sent.at, free_at))
            self._lanes.put(self._run_through(wakes, burn))
            sent.future.set_result(sent.result)

    def _run_through(self, wakes: Generator[Wake, float, None], burn: _Burner) -> float:
        """Return when the last of the wakes has acted.

        A thread that wakes late, for a busy core or Python's lock, acts late. One that is behind
        before it would sleep catches up: most often the lock held it up, which gloo's do not need.
        """
        wake = next(wakes)
        while True:
            if wake.busy_s:
                self._kernel.put(wake)
            is_behind = time.perf_counter() > wake.at
            _sleep_until(wake.at)
            burn(wake.acting_s, until=wake.at)
            acted_at = wake.acted_at if is_behind else max(wake.acted_at, time.perf_counter())
            _sleep_until(wake.acted_at)  # so that others use the link before
            try:
                wake = wakes.send(acted_at)
            except StopIteration:
                return acted_at

    def _take_core(self) -> None:
        """Take the CPU time of bytes, which no thread of gloo's waits for: it is the kernel's."""
        _sleep_exactly()
        burn = _Burner()
        while True:
            wake = self._kernel.get()
            burn(wake.busy_s, until=wake.at)

    def _count(self, change: int) -> None:
        with self._counting:
            self._waiting += change


def _sleep_until(at: float) -> None:
    while (left_s := at - time.perf_counter()) > 0:
        time.sleep(left_s)


def _sleep_exactly() -> None:
    """Let this thread wake at its time: by default Linux wakes it up to 50 µs later."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)


class _Burner:
    """CPU time of this thread: sums of tensors, like those of a reduction, without Python's lock.

    It is spread evenly until a time. On a busy core it may take longer, as that of a real one.
    """

    def __init__(self) -> None:
        slices = torch.zeros(64 * _SLICE).chunk(64)
        self._slices = itertools.cycle(itertools.pairwise(slices))

    def __call__(self, busy_s: float, *, until: float) -> None:
        start, begun, spent = time.perf_counter(), time.thread_time(), 0.0
        share = busy_s / max(until - start, busy_s, _SLICE_S)
        while spent < busy_s:
            due = share * (time.perf_counter() - start + _SLICE_S)
            if spent >= min(due, busy_s):
                time.sleep(_SLICE_S)
                continue
            target, source = next(self._slices)
            target.add_(source)
            spent = time.thread_time() - begun


# On a GPU: a kernel that only waits, on a stream of its own.


_CALIBRATED = 10_000_000  # cycles
_WAKING_S = 0.3


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
    waking_until = time.monotonic() + _WAKING_S
    while True:  # an idle GPU has a lower clock
        begin.record()
        wait_on_gpu(_CALIBRATED)
        end.record()
        end.synchronize()
        if time.monotonic() > waking_until:
            milliseconds: float = begin.elapsed_time(end)
            return 1000 * _CALIBRATED / milliseconds
