"""A fork inherits clients of Kafka without their threads, and must never free one."""

from __future__ import annotations

import gc
import os
import signal

from confluent_kafka import Producer

import tidelock.kafka.brokers  # noqa: F401  what has to be done at a fork is registered there


def test_garbage_of_the_parent_is_not_collected_in_a_child() -> None:
    gc.disable()
    try:
        garbage: dict[str, object] = {"client": Producer({"bootstrap.servers": "127.0.0.1:1"})}
        garbage["itself"] = garbage
        del garbage
        child = os.fork()
        if not child:
            signal.alarm(20)  # it would wait for threads that it does not have
            gc.collect()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        gc.enable()
        gc.collect()
