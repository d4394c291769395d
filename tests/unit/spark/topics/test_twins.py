"""Reading and writing a topic take the same things by the same names, and what 0.1.0 called them stays."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import tidelock


def parameters(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """By their names, how parameters are given, and what they are if nothing is said."""
    return {p.name: (p.kind, p.default) for p in inspect.signature(function).parameters.values()}


def test_both_ends_of_a_topic_have_the_same_words() -> None:
    reading, writing = parameters(tidelock.read_topic), parameters(tidelock.Pipeline.write_topic)
    assert list(reading)[:3] == ["spark", "topic", "servers"]
    assert list(writing)[:4] == ["self", "node", "topic", "servers"]
    assert {name: reading[name] for name in ("topic", "servers", "avro")} == {
        name: writing[name] for name in ("topic", "servers", "avro")
    }


def test_what_0_1_0_called_them_is_accepted() -> None:
    assert list(parameters(tidelock.kafka_records))[:3] == ["spark", "servers", "topic"]
    assert parameters(tidelock.kafka_records).keys() == parameters(tidelock.read_topic).keys()
    assert parameters(tidelock.Pipeline.topic) == parameters(tidelock.Pipeline.write_topic)


@pytest.mark.parametrize("name", ["topic", "write_topic"])
def test_a_topic_is_a_sink_by_either_name(name: str) -> None:
    pipeline = tidelock.Pipeline("words")
    getattr(pipeline, name)("words", "words.out", servers="host:9092", key="id")
    assert list(pipeline.sinks) == ["words_topic"]
