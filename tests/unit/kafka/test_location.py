"""What a Kafka URL says, and how it is told that it says nothing."""

from __future__ import annotations

import doctest

import pytest

from tidelock.credentials import Credentials, credentials_for
from tidelock.errors import PipelineError
from tidelock.kafka import location
from tidelock.kafka.location import KafkaLocation, parse


def test_doctests() -> None:
    result = doctest.testmod(location)
    assert (result.failed, result.attempted > 0) == (0, True)


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("kafka://localhost", "kafka://localhost:9092"),
        ("kafka://h:1/a/b/", "kafka://h:1/a/b"),
        ("kafka://a,b:2/x?replication=3&partitions=8", "kafka://a:9092,b:2/x?partitions=8&replication=3"),
        ("kafkas://h/a?key=/k&ca=/c&cert=/o", "kafkas://h:9092/a?ca=/c&cert=/o&key=/k"),
        ("kafka://[::1]:7/x", "kafka://[::1]:7/x"),
        ("kafka://me:p%40ss@h/x?timeout=0.5", "kafka://h:9092/x?timeout=0.5"),
        ("kafka://me:p@h/x?mechanism=SCRAM-SHA-256", "kafka://h:9092/x?mechanism=SCRAM-SHA-256"),
        ("kafka://h/x?mechanism=PLAIN&timeout=10&partitions=4", "kafka://h:9092/x"),
    ],
)
def test_all_spellings_have_one_canonical_form(url: str, canonical: str) -> None:
    assert parse(url).url == canonical
    assert parse(canonical) == parse(url)


def test_the_password_is_not_for_people() -> None:
    here = parse("kafka://me:s3cret@h/x")
    assert here.url == here.shown == "kafka://h:9092/x"
    assert "s3cret" not in repr(here)
    assert credentials_for(here.url) == Credentials("me", "s3cret")


def test_everything_on_the_same_brokers_shares_their_connections() -> None:
    assert parse("kafka://h/a?partitions=2").brokers == parse("kafka://h:9092/b/c?replication=3").brokers


def test_different_paths_have_different_topics() -> None:
    paths = ["a/b", "a.b", "a./b", "a..b", "a/b/c", "a/b.c", "a.b/c", "a-b", "a_b"]
    assert len({parse(f"kafka://h/{path}").topic for path in paths}) == len(paths)


def test_a_location_has_defaults() -> None:
    assert parse("kafka://h") == KafkaLocation(hosts=(("h", 9092),))


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("file:/tmp/x", r"is not the URL of Kafka brokers: write kafka://host:9092/name"),
        ("kafka:/path", r"is not the URL of Kafka brokers"),
        ("kafka://h:port/x", r"'h:port' is not a host and its port"),
        ("kafka://h,/x", r"'' is not a host and its port"),
        ("kafka://h/a b", r"topics are named after the path"),
        ("kafka://h/.a", r"beginning with a letter or digit"),
        ("kafka://h/a//b", r"topics are named after the path"),
        (f"kafka://h/{'x' * 231}", r"at most 230 of them"),
        ("kafka://h/x?replicas=1", r"unknown option replicas; a Kafka URL knows ca, cert, key, mechanism,"),
        ("kafka://h/x?replication=0", r"replication is '0': it must be a whole number above 0"),
        ("kafka://h/x?partitions=many", r"partitions is 'many': it must be a whole number above 0"),
        ("kafka://h/x?timeout=-1", r"timeout is '-1': it must be a number of seconds above 0"),
        ("kafka://h/x?mechanism=MAGIC", r"mechanism is 'MAGIC': it must be one of PLAIN, SCRAM-SHA-256"),
    ],
)
def test_what_is_wrong_is_told(url: str, told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        parse(url)


def test_a_wrong_url_does_not_tell_its_password() -> None:
    with pytest.raises(PipelineError) as told:
        parse("kafka://me:s3cret@h/x?surprise=1")
    assert "s3cret" not in str(told.value)
