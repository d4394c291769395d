"""A conversation with a server: answers stay in step with questions, whatever goes wrong in between."""

from __future__ import annotations

import pytest
from tests.redis_servers import RedisServer

from tidelock.cache.wire import command
from tidelock.errors import BackendUnavailable
from tidelock.redis.conversation import Conversation, converse
from tidelock.redis.location import parse


def test_answers_are_those_to_the_questions(redis_url: str) -> None:
    here = parse(redis_url)
    set_and_get = [command("SET", here.path, "5"), command("GET", here.path), command("INCR", here.path)]
    assert converse(here, lambda talk: talk.ask(*set_and_get)) == [b"OK", b"5", 6]
    assert converse(here, lambda talk: talk.ask()) == []


def test_an_error_among_the_answers_is_told_and_does_not_mix_them_up(redis_url: str) -> None:
    here = parse(redis_url)
    wrong = [command("SET", here.path, "text"), command("INCR", here.path), command("GET", here.path)]
    for _ in range(3):
        with pytest.raises(BackendUnavailable, match="value is not an integer"):
            converse(here, lambda talk: talk.ask(*wrong))
        assert converse(here, lambda talk: talk.ask(command("GET", here.path))) == [b"text"]


def test_a_change_of_several_keys_happens_as_a_whole_or_not_at_all(redis_url: str) -> None:
    here = parse(redis_url)
    one, two = f"{here.path}:1", f"{here.path}:2"

    def change(talk: Conversation, meanwhile: str) -> object:
        talk.ask(command("WATCH", one))
        converse(here, lambda other: other.ask(command("SET", meanwhile, "changed")))
        return talk.ask_if_unchanged([command("SET", one, "1"), command("SET", two, "2")])

    read = [command("GET", one), command("GET", two)]
    assert converse(here, lambda talk: change(talk, f"{here.path}:3")) == [b"OK", b"OK"]
    assert converse(here, lambda talk: talk.ask(*read)) == [b"1", b"2"]
    assert converse(here, lambda talk: change(talk, one)) is None
    assert converse(here, lambda talk: talk.ask(*read)) == [b"changed", b"2"]


def test_an_error_inside_of_a_change_is_told(redis_url: str) -> None:
    here = parse(redis_url)
    changes = [command("SET", here.path, "text"), command("INCR", here.path)]
    with pytest.raises(BackendUnavailable, match="value is not an integer"):
        converse(here, lambda talk: talk.ask_if_unchanged(changes))
    with pytest.raises(BackendUnavailable, match="unknown command"):
        converse(here, lambda talk: talk.ask_if_unchanged([command("NONSENSE")]))


def test_what_was_watched_by_somebody_who_failed_is_not_watched_any_more(redis_url: str) -> None:
    here = parse(redis_url)

    def fail(talk: Conversation) -> None:
        talk.ask(command("WATCH", here.path))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        converse(here, fail)
    converse(here, lambda talk: talk.ask(command("SET", here.path, "changed")))
    assert converse(here, lambda talk: talk.ask_if_unchanged([command("GET", here.path)])) == [b"changed"]


def test_a_conversation_that_breaks_begins_again(redis_server: RedisServer, redis_url: str) -> None:
    here = parse(redis_url)
    begun = []

    def break_off(talk: Conversation) -> object:
        begun.append(talk)
        (own,) = talk.ask(command("CLIENT", "ID"))
        if len(begun) < 3:
            with redis_server.client() as client:
                client.execute_command("CLIENT", "KILL", "ID", own)
        return talk.ask(command("GET", here.path))

    assert converse(here, break_off) == [None]
    assert len(begun) == 3
