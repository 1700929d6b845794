"""The driver at the other end of a server's channel."""

from __future__ import annotations

import os
import threading

import msgspec

from ddp_perf.launch.protocol import Channel, DescribeRequest
from ddp_perf.launch.supervisor import driver as driver_side


def test_a_server_beats_while_its_driver_asks_for_nothing(monkeypatch):
    monkeypatch.setattr(driver_side, "_IDLE_S", 0.05)
    requests, answers = os.pipe(), os.pipe()
    server, driver = Channel(requests[0], answers[1]), Channel(answers[0], requests[1])
    request = DescribeRequest(tier="cpu")
    received = []
    waiting = threading.Thread(target=lambda: received.append(driver_side.Driver(server).next()))
    waiting.start()

    driver.read()
    driver.send(msgspec.json.encode(request))
    waiting.join(10)

    assert driver.beats == 1
    assert received == [request]
    server.close()
    driver.close()


def test_a_driver_gets_signs_of_life_while_it_may_ask_for_the_end():
    requests, answers = os.pipe(), os.pipe()
    server, driver = Channel(requests[0], answers[1]), Channel(answers[0], requests[1])

    driver_side.Driver(server).check(0.1)

    assert driver.receive(0) is None
    assert driver.beats == 1
    server.close()
    driver.close()
