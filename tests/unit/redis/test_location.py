"""What a Redis URL says, and how it is told that it says nothing."""

from __future__ import annotations

import doctest

import pytest

from tidelock.credentials import Credentials, credentials_for
from tidelock.errors import PipelineError
from tidelock.redis import location
from tidelock.redis.location import RedisLocation, parse


def test_doctests() -> None:
    result = doctest.testmod(location)
    assert (result.failed, result.attempted > 0) == (0, True)


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("redis://localhost", "redis://localhost:6379/0"),
        ("redis://localhost/", "redis://localhost:6379/0"),
        ("redis://h:1/2/a/b/", "redis://h:1/2/a/b"),
        ("rediss://h/0/a?key=/k&ca=/c&cert=/o", "rediss://h:6379/0/a?ca=/c&cert=/o&key=/k"),
        ("redis://a,b:2/0/x?sentinel=main", "redis://a:26379,b:2/0/x?sentinel=main"),
        ("redis://[::1]:7/0/x", "redis://[::1]:7/0/x"),
        ("redis://me:p%40ss@h/0/x?timeout=0.5", "redis://h:6379/0/x?timeout=0.5"),
        ("redis://:secret@h/0/a%20b?replicas=0", "redis://h:6379/0/a%20b"),
    ],
)
def test_all_spellings_have_one_canonical_form(url: str, canonical: str) -> None:
    assert parse(url).url == canonical
    assert parse(canonical) == parse(url)


def test_the_password_is_not_for_people() -> None:
    here = parse("redis://me:s3cret@h/0/x")
    assert here.url == here.shown == "redis://h:6379/0/x"
    assert "s3cret" not in repr(here)
    assert credentials_for(here.url) == Credentials("me", "s3cret")


def test_everything_in_a_database_has_the_same_server() -> None:
    one, two = parse("redis://h/1/a"), parse("redis://h:6379/1/b/c")
    assert one.server == two.server
    assert parse("redis://h/1").under("a") == one


def test_a_location_has_defaults() -> None:
    assert parse("redis://h") == RedisLocation(hosts=(("h", 6379),), db=0, path="")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("file:/tmp/x", r"is not the URL of a Redis server: write redis://host:6379/0/name"),
        ("redis:/path", r"is not the URL of a Redis server"),
        ("redis://h/words", r"the path begins with the number of the database: write .* redis://host:6379/words"),
        ("redis://h:port/0/x", r"'h:port' is not a host and its port"),
        ("redis://h,/0/x", r"'' is not a host and its port"),
        ("redis://a,b/0/x", r"several hosts are Sentinels: add \?sentinel=NAME, .* give one host alone"),
        ("redis://a,b/0/x?replicas=1", r"several hosts are Sentinels"),
        ("redis://a,b/0/x?sentinel=", r"sentinel has no value: it must be the name of the primary"),
        ("redis://a/0/x?sentinel=", r"sentinel has no value"),
        ("redis://h/0/x?replica=1", r"unknown option replica; a Redis URL knows ca, cert, key, replicas,"),
        ("redis://h/0/x?replicas=-1", r"replicas is '-1': it must be a whole number, not below 0"),
        ("redis://h/0/x?replicas=1.5", r"replicas is '1.5'"),
        ("redis://h/0/x?timeout=soon", r"timeout is 'soon': it must be a number of seconds above 0"),
        ("redis://h/0/x?timeout=0", r"timeout is '0'"),
        ("redis://h/0/x?timeout=nan", r"timeout is 'nan'"),
        ("redis://h/0/x?replicas=inf", r"replicas is 'inf'"),
    ],
)
def test_what_is_wrong_with_a_url_is_told(url: str, told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        parse(url)


@pytest.mark.parametrize("rest", ["h:port/0/x", "h/words", "h/0/x?replicas=many", "h/0/x?what=1"])
def test_what_is_wrong_is_told_without_the_password(rest: str) -> None:
    with pytest.raises(PipelineError, match=r"redis://me:\*\*\*@h") as told:
        parse(f"redis://me:s3cret@{rest}")
    assert "s3cret" not in str(told.value)
