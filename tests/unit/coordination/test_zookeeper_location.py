"""What a ZooKeeper URL says, and how it is told that it says nothing."""

from __future__ import annotations

import doctest

import pytest

from tidelock.coordination.zookeeper import location
from tidelock.coordination.zookeeper.location import ZooKeeperLocation, parse
from tidelock.credentials import Credentials, credentials_for
from tidelock.errors import PipelineError


def test_doctests() -> None:
    result = doctest.testmod(location)
    assert (result.failed, result.attempted > 0) == (0, True)


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("zookeeper://h", "zookeeper://h:2181/tidelock"),
        ("zookeeper://h/", "zookeeper://h:2181/tidelock"),
        ("zookeeper://h:1,[::1]:2,[::2]/a/b/", "zookeeper://h:1,[::1]:2,[::2]:2181/a/b"),
        ("zookeeper://h/a%20b?timeout=0.5", "zookeeper://h:2181/a%20b?timeout=0.5"),
        ("zookeeper://h?timeout=10", "zookeeper://h:2181/tidelock"),
    ],
)
def test_all_spellings_have_one_canonical_form(url: str, canonical: str) -> None:
    assert parse(url).shown == canonical
    assert parse(canonical) == parse(url)


def test_a_location_has_defaults() -> None:
    assert parse("zookeeper://h") == ZooKeeperLocation(hosts=(("h", 2181),))


def test_the_password_is_not_for_people() -> None:
    here = parse("zookeeper://me:s3%40cret@h/x")
    assert here.shown == "zookeeper://h:2181/x"
    assert "s3" not in repr(here)
    assert credentials_for(here.shown) == Credentials("me", "s3@cret")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("zookeeper:", r"is not the URL of a ZooKeeper ensemble: write zookeeper://host:2181,host2:2181/path"),
        ("zookeeper:/path", r"is not the URL of a ZooKeeper ensemble"),
        ("zookeeper://h/x#y", r"is not the URL of a ZooKeeper ensemble"),
        ("zookeeper://h:port/x", r"'h:port' is not a host and its port"),
        ("zookeeper://h:65536/x", r"'h:65536' is not a host and its port"),
        ("zookeeper://h,/x", r"'' is not a host and its port"),
        ("zookeeper://h/a//b", r"bad tree path '/a//b'"),
        ("zookeeper://h/zookeeper/x", r"ZooKeeper keeps /zookeeper for itself: choose another path"),
        ("zookeeper://h/x?timeouts=1", r"unknown option timeouts; a ZooKeeper URL knows timeout"),
        ("zookeeper://h/x?timeout=soon", r"timeout is 'soon': it must be a number of seconds above 0"),
        ("zookeeper://h/x?timeout=0", r"timeout is '0'"),
        ("zookeeper://h/x?timeout=inf", r"timeout is 'inf'"),
    ],
)
def test_what_is_wrong_with_a_url_is_told(url: str, told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        parse(url)


@pytest.mark.parametrize("rest", ["h:port/x", "h/a//b", "h/x?what=1", "h/x?timeout=no", "h/x#y", "h/zookeeper"])
def test_what_is_wrong_is_told_without_the_password(rest: str) -> None:
    with pytest.raises(PipelineError, match=r"zookeeper://me:\*\*\*@h") as told:
        parse(f"zookeeper://me:s3cret@{rest}")
    assert "s3cret" not in str(told.value)
