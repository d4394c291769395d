"""Credentials are taken out of URLs, found again for the servers that they are for, and for no others."""

from __future__ import annotations

import json
import logging
import os
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st
from kazoo.client import KazooClient
from kazoo.exceptions import BadArgumentsError, KazooException, NoAuthError
from kazoo.protocol.serialization import Auth, GetData

from tidelock.coordination.zookeeper import failures, session
from tidelock.coordination.zookeeper import location as zookeeper
from tidelock.credentials import (
    FILE,
    PASSWORDS,
    Credentials,
    cause,
    credentials_for,
    exported,
    forget,
    found,
    has_password,
    redacted,
    taken,
    told,
    with_credentials,
    without_credentials,
)
from tidelock.errors import PipelineError, TidelockError
from tidelock.kafka import errors as kafka_errors
from tidelock.kafka import location as kafka_location
from tidelock.urls import masked

ME = Credentials("me", "s3cret")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of credentials, which is empty."""
    made = tmp_path / "credentials"
    made.touch(mode=0o600)
    monkeypatch.setenv(FILE, str(made))
    return made


def test_what_is_taken_out_of_a_url_is_found_for_its_place_and_all_below_it() -> None:
    place = taken("redis://me:s3cret@h/0/jobs?replicas=1")
    assert place == "redis://h/0/jobs?replicas=1"
    for asked in (place, "redis://h:6379/0/jobs/words", "redis://H/0/jobs", "redis://h/1/other"):
        assert credentials_for(asked) == ME


@pytest.mark.parametrize(
    "asked",
    [
        "redis://other/0/jobs",
        "redis://h:6380/0/jobs",
        "redis://h,evil/0/jobs",  # one of its hosts is not among those that the password is for
        "redis://h:26379/0/jobs",
        "kafka://h:6379/jobs",
    ],
)
def test_no_other_server_gets_them(asked: str) -> None:
    taken("redis://me:s3cret@h/0/jobs")
    assert credentials_for(asked) is None


def test_a_password_that_was_given_for_tls_is_not_sent_without() -> None:
    taken("rediss://me:s3cret@h/0/jobs")
    assert credentials_for("redis://h/0/jobs") is None


def test_some_hosts_of_an_ensemble_are_enough() -> None:
    taken("zookeeper://me:s3cret@a,b,c:2182/x")
    assert credentials_for("zookeeper://b:2181,c:2182/y") == ME


def test_the_nearest_path_counts_and_then_the_last_word() -> None:
    for user, path in (("all", "0"), ("logs", "0/logs"), ("cache", "0/cache"), ("late", "0/logs")):
        taken(f"redis://{user}:s3cret@h/{path}")
    users = {path: credentials_for(f"redis://h/{path}") for path in ("0/logs/words", "0/cache", "0/else", "0")}
    assert {path: who and who.user for path, who in users.items()} == {
        "0/logs/words": "late",
        "0/cache": "cache",
        "0/else": "all",
        "0": "all",
    }


def test_a_url_goes_before_the_environment_before_the_file_before_what_is_stored(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def user() -> str | None:
        who = credentials_for("redis://h/0/x/words")
        return who and who.user

    assert user() is None
    assert found("redis://stored:pw@h/0/x/words") == "redis://h/0/x/words"
    assert user() == "stored"
    file.write_text("# ours\n\nkafka://k:pw@h\nredis://file:pw@h:6379\n")
    assert user() == "file"
    monkeypatch.setenv(PASSWORDS, "kafka://k:pw@h redis://environment:pw@h")
    assert user() == "environment"
    taken("redis://url:pw@h/0")
    assert user() == "url"


def test_a_user_in_the_url_has_the_password_that_stands_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    taken("redis://two@h/0")
    assert credentials_for("redis://h/0/x") == Credentials("two")
    monkeypatch.setenv(PASSWORDS, "redis://one:first@h redis://two:second@h")
    assert credentials_for("redis://h/0/x") == Credentials("two", "second")


def test_another_process_is_who_this_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORDS, "redis://low:pw@h/0/x redis://mine:pw@other")
    taken("redis://high:p%40ss%20word@h/0")
    found("redis://old:pw@h/0/x/y")
    text = exported()
    forget()
    monkeypatch.setenv(PASSWORDS, text or "")
    assert credentials_for("redis://h/0/x/y") == Credentials("high", "p@ss word")
    assert credentials_for("redis://other/0") == Credentials("mine", "pw")
    assert exported() == text


def test_what_is_said_again_changes_nothing_for_other_processes() -> None:
    taken("redis://me:s3cret@h/0")
    taken("redis://you:s3cret@i/0")
    told = exported()
    for url in ("redis://me:s3cret@h/0", "redis://me:s3cret@h/0/words", "redis://you:s3cret@i/0/counts"):
        taken(url)
    assert exported() == told
    taken("redis://me:changed@h/0/words")
    assert exported() != told


def test_nothing_to_say_is_nothing() -> None:
    assert exported() is None
    assert credentials_for("file:/data") is None


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_file_that_others_may_read_is_refused(file: Path, mode: int) -> None:
    file.write_text("redis://me:s3cret@h")
    file.chmod(mode)
    with pytest.raises(PipelineError, match=f"chmod 600 {file}"):
        credentials_for("redis://h/0")


def test_what_is_wrong_with_them_is_told_without_them(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("redis://me:s3cret@h\ns3cret\n")
    with pytest.raises(PipelineError, match=r"entry 2 is not a URL with a user or a password") as told:
        credentials_for("redis://h/0")
    assert "s3cret" not in str(told.value)
    file.unlink()
    with pytest.raises(PipelineError, match=r"cannot be read: No such file"):
        credentials_for("redis://h/0")
    monkeypatch.delenv(FILE)
    monkeypatch.setenv(PASSWORDS, "redis://h")
    with pytest.raises(PipelineError, match=r"\$TIDELOCK_PASSWORDS: entry 1"):
        credentials_for("redis://h/0")


def test_a_changed_file_counts_at_once(file: Path) -> None:
    file.write_text("redis://me:first@h")
    assert credentials_for("redis://h/0") == Credentials("me", "first")
    file.write_text("redis://me:second@h")
    os.utime(file, ns=(1, 1))
    assert credentials_for("redis://h/0") == Credentials("me", "second")


@pytest.mark.parametrize(
    "url",
    ["file:/data/x@y", "/data/a:b@c", "abfs://container@account.net/x", "s3://bucket/a:b@c", "h:9092,i:9092"],
)
def test_what_only_looks_like_a_user_stays(url: str) -> None:
    assert taken(url) == url
    assert exported() is None


def test_backups_get_a_url_with_credentials_back() -> None:
    place = taken("ftp://me:s3%2Fcret@h/dir")
    assert place == "ftp://h/dir"
    assert with_credentials(f"{place}/x", credentials_for(f"{place}/x")) == "ftp://me:s3%2Fcret@h/dir/x"
    assert with_credentials("file:/data", None) == "file:/data"


def test_words_of_others_are_cleaned_of_passwords() -> None:
    taken("redis://me:s3%2Fcret@h/0")
    told = "cannot login with s3/cret at ftp://me:s3%2Fcret@h"
    assert redacted(told) == "cannot login with *** at ftp://me:***@h"


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("redis://me:s3cret@h", True),
        ("words=redis://:s3cret@h/0", True),
        ("redis://me@h", False),
        ("file:/a:b@c", False),
        ("--json", False),
    ],
)
def test_a_word_of_a_command_line_is_looked_at(word: str, says: bool) -> None:
    assert has_password(word) is says


words = st.text(min_size=1, max_size=8)


@given(st.none() | words, words)
def test_any_user_and_password_go_through_a_url(user: str | None, password: str) -> None:
    forget()
    who = Credentials(user, password)
    url = with_credentials("redis://h/0/x", who)
    assert taken(url) == without_credentials(url) == "redis://h/0/x"
    assert credentials_for("redis://h/0/x") == who
    assert taken(str(exported())) == "redis://h:6379/0/x"
    assert repr(who).find(repr(password)) == -1 or password in str(user)
    assert masked(url) == f"redis://{url.partition('//')[2].partition(':')[0]}:***@h/0/x"


@pytest.mark.parametrize("password", ['se"same', "se'same", "se\\same", "ses\name", "s\u00e9same1", "se same"])
def test_a_password_is_hidden_however_others_write_it(password: str) -> None:
    taken(with_credentials("redis://h/0", Credentials("me", password)))
    words = [password, repr(password), f"{[password, chr(39)]}", json.dumps(password), repr(password.encode())]
    words += [with_credentials("ftp://h", Credentials("me", password)), f"x{password}y"]
    for text in words:
        assert "same" not in redacted(text)
        assert "***" in redacted(text)


@pytest.mark.parametrize("text", ["the database", "metadata.json", "updated: no test", "datasets"])
def test_a_password_that_is_a_word_spoils_no_other_words(text: str) -> None:
    taken("redis://me:data@h/0")
    assert redacted(text) == text


def test_a_password_that_is_a_word_is_hidden_where_it_stands_alone() -> None:
    taken("redis://me:data@h/0")
    told = "login me data: b'\\x00me\\x00data' at redis://me:data@h, AUTH_data"
    assert redacted(told) == "login me ***: b'\\x00me\\x00***' at redis://me:***@h, AUTH_***"


def test_of_a_password_with_a_line_break_no_line_is_told() -> None:
    """What is told is one line of what was said."""
    taken(with_credentials("redis://h/0", Credentials("me", "s3same\nopen5\n")))
    for words in ("no login with s3same\nopen5\n", "no login with s3same", "open5 is wrong"):
        assert not {"s3same", "open5"} & {*redacted(words).split()}


def test_an_error_is_told_in_one_line_without_passwords() -> None:
    taken("redis://me:s3cret@h/0")
    assert told(ValueError("no login with s3cret\nat h")) == "no login with ***"
    assert told(TimeoutError()) == "TimeoutError"


def test_an_error_is_named_as_a_cause_unless_it_or_what_is_behind_it_tells_a_password() -> None:
    taken("redis://me:s3cret@h/0")
    fine, telling, hiding = ValueError("no login"), ValueError("no login with s3cret"), ValueError("no login")
    assert cause(fine) is fine
    assert cause(telling) is None
    hiding.__context__ = telling
    assert cause(hiding) is None
    hiding.__suppress_context__ = True
    assert cause(hiding) is hiding
    hiding.__cause__ = telling
    assert cause(hiding) is None


def of_kafka() -> AbstractContextManager[None]:
    return kafka_errors.translated(kafka_location.parse_servers("kafka://h"))


def of_zookeeper() -> AbstractContextManager[None]:
    return failures.translated(zookeeper.parse("zookeeper://h"), "/x")


def making() -> AbstractContextManager[None]:
    return failures.creating(zookeeper.parse("zookeeper://h"), "/x")


@pytest.mark.parametrize(
    ("translated", "failure"),
    [
        (of_kafka, KafkaException(KafkaError(KafkaError._FAIL, "sasl.password=s3cret"))),
        (of_kafka, KafkaException(KafkaError(KafkaError._AUTHENTICATION, "me s3cret"))),
        (of_kafka, KafkaException(KafkaError(KafkaError._INVALID_ARG, "me s3cret"))),
        *(
            (place, kind("me:s3cret"))
            for place in (of_zookeeper, making)
            for kind in (NoAuthError, KazooException)
        ),
        (of_zookeeper, BadArgumentsError("me:s3cret")),
    ],
)
def test_words_of_a_server_hold_no_password(
    translated: Callable[[], AbstractContextManager[None]], failure: Exception
) -> None:
    """What is printed in full has the error behind it, too."""
    taken("kafka://me:s3cret@h")
    with pytest.raises(TidelockError) as caught, translated():
        raise failure
    assert "***" in str(caught.value)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_kafka_s_earlier_words_hold_no_password_either() -> None:
    taken("kafka://me:s3cret@h")
    here = kafka_location.parse_servers("kafka://h")
    down, before = KafkaError(KafkaError._ALL_BROKERS_DOWN), KafkaError(KafkaError._FAIL, "s3cret")
    assert "s3cret" not in str(kafka_errors.translate(down, here, before))


def test_what_zookeeper_s_client_logs_does_not_tell_who_we_are(caplog: pytest.LogCaptureFixture) -> None:
    """At the level `DEBUG` it logs all that it sends, and that is how it says who we are."""
    made: list[Any] = []

    def remember(*args: Any, **options: Any) -> KazooClient:
        made.append(KazooClient(*args, **options))
        raise InterruptedError

    taken("zookeeper://me:s3cret@h")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(InterruptedError):
        patch.setattr(session, "KazooClient", remember)
        session.Session(zookeeper.parse("zookeeper://h"), 1, lambda: None)
    (client,) = made
    caplog.set_level(logging.DEBUG)
    for who in client.auth_data:
        client.logger.debug("Sending request(xid=%s): %s", -4, Auth(0, *who))
    client.logger.debug("Sending request(xid=%s): %s", 1, GetData("/x", None))
    assert "GetData" in caplog.text
    assert "s3cret" not in caplog.text
