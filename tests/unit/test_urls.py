"""What URLs say of directories and servers."""

from __future__ import annotations

import doctest
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelock import urls
from tidelock.coordination.zookeeper.location import parse as zookeeper_place
from tidelock.credentials import Credentials, credentials_for, found, has_password, taken, without_credentials
from tidelock.errors import PipelineError
from tidelock.kafka.location import parse as kafka_place
from tidelock.redis.location import parse as redis_place
from tidelock.urls import directory, directory_url, located, masked

Parse = Callable[[str], Any]


def test_doctests() -> None:
    result = doctest.testmod(urls)
    assert (result.failed, result.attempted > 0) == (0, True)


@given(st.binary(min_size=1).filter(lambda name: b"\0" not in name))
def test_any_directory_goes_through_a_url(name: bytes) -> None:
    path = Path(f"/{os.fsdecode(name)}/x").absolute()
    url = directory_url(path)
    assert os.path.normpath(directory(url)) == os.path.normpath(f"/{str(path).lstrip('/')}")
    assert located(url) == directory_url(directory(url)) == url
    assert not {"#", "?"} & set(url)
    assert directory(str(path)) == directory(url)


@pytest.mark.parametrize("url", ["file://other/data", "file:", "file://[x/data", "redis://h/0", "hdfs:/data"])
def test_what_is_no_directory_is_told(url: str) -> None:
    with pytest.raises(PipelineError, match="is not a directory's URL: write file:/path/to/the/log"):
        directory(url)


SERVERS = [("redis", redis_place), ("rediss", redis_place), ("kafka", kafka_place), ("zookeeper", zookeeper_place)]
SPELLED_WELL = ["[sesame99]", "se[same99", "se]same99", "se:same99", "se@same99"]
SPELLED_WRONG = [
    "ses/ame99",
    "ses?ame99",
    "ses#ame99",
    "/sesame99",
    "[ses/ame99]",
    "1/sesame99",
    "ses/ame99?password=x",
]


@pytest.mark.parametrize("password", SPELLED_WELL)
@pytest.mark.parametrize(("scheme", "parse"), SERVERS)
def test_brackets_belong_to_a_password(scheme: str, parse: Parse, password: str) -> None:
    here = parse(f"{scheme}://me:{password}@host/0")
    assert credentials_for(here.shown) == Credentials("me", password)


@pytest.mark.parametrize("password", SPELLED_WRONG)
@pytest.mark.parametrize(("scheme", "parse"), SERVERS)
def test_a_password_with_a_slash_is_refused_without_any_of_it(scheme: str, parse: Parse, password: str) -> None:
    url = f"{scheme}://me:{password}@host/0/x"
    for read in (parse, taken, without_credentials):
        with pytest.raises(PipelineError, match=r"behind the hosts\. .* write %2F for /") as told:
            read(url)
        assert not re.search("ses|ame99", str(told.value))
    assert not re.search("ses|ame99", masked(url))
    assert has_password(url)


def test_a_path_that_was_stored_with_an_at_is_found_again() -> None:
    assert redis_place(found("redis://me:s3cret@host/0/a@b")) == redis_place("redis://host/0/a%40b")


@pytest.mark.parametrize("hosts", ["[host", "host]", "[host]x", "a[b", "[fe80", "\uff0f"])
@pytest.mark.parametrize(("scheme", "parse"), SERVERS)
def test_hosts_that_are_none_are_told_without_the_password(scheme: str, parse: Parse, hosts: str) -> None:
    with pytest.raises(PipelineError, match=rf"{scheme}://me:\*\*\*@") as told:
        parse(f"{scheme}://me:s3cret@{hosts}/0/x")
    assert "s3cret" not in str(told.value)


@pytest.mark.parametrize(
    "url", ["ftp://me:ses/ame99@host/dir", "sftp://me:ses?ame99@host/dir", "ftp://:ses#ame99@h"]
)
def test_the_url_of_a_backup_is_no_other(url: str) -> None:
    with pytest.raises(PipelineError, match="write %2F for /") as told:
        taken(url)
    assert not re.search("ses|ame99", str(told.value))


@pytest.mark.parametrize(
    "url", ["redis:me:s3cret@host", "me:s3cret@host", "redis:s3cret@host", "redis:/me:s3cret@host"]
)
def test_a_url_without_slashes_is_masked(url: str) -> None:
    assert "s3cret" not in masked(url)


@pytest.mark.parametrize("url", ["file:/data/a:b@c", "/data/a:b@c", "file:///data/a@b", "s3://bucket/a@b"])
def test_a_directory_is_not_masked(url: str) -> None:
    assert masked(url) == url
