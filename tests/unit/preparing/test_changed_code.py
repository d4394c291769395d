"""Code that has changed since a home was last run, without Spark: what is told, and what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.topology.shapes import chain

from tidelock.errors import PipelineError
from tidelock.fingerprint.nodes import Layout, NodePrint
from tidelock.fingerprint.parts import SOURCE, FingerprintPart
from tidelock.home.events import Events
from tidelock.home.home import Home, Record, SegmentRecord
from tidelock.preparing.changed_code import accepted_changes, encode_prints, tell_changes

STATE = Layout("Aggregate", (("k", "string"),))


def printed(code: str, **more: object) -> NodePrint:
    return replace(NodePrint((FingerprintPart("f", SOURCE, code, code),)), **more)  # type: ignore[arg-type]


OLD = {"b": printed("1"), "c": printed("2", keeps_state=True, layouts=(STATE,))}


class Shop:
    def __init__(self, folder: Path) -> None:
        self.home = Home(folder)
        self.record = Record("chain", {}, {}, (), {}, prints=encode_prints(OLD))

    def start(self, new: dict[str, NodePrint], *, accept: bool = False) -> list[tuple[str, str]]:
        """Start it with other code; what is told."""
        self.home.remember(self.record)
        before = len(self.home.events())
        old = self.home.record()
        changes = accepted_changes(self.home, old, new, accept=accept)
        tell_changes(changes, old, new, chain(), Events(self.home))
        return [(event["kind"], event["text"]) for event in self.home.events()[before:]]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_the_same_code_is_not_mentioned(shop: Shop) -> None:
    assert shop.start(OLD) == []


def test_a_home_of_an_early_release_says_that_it_compares_nothing(shop: Shop) -> None:
    shop.record = replace(shop.record, prints=None)
    ((kind, _),) = shop.start({"c": printed("9", keeps_state=True)})
    assert kind == "fingerprints recorded"


def test_an_operator_without_state_may_change_and_whom_it_feeds_is_told(shop: Shop) -> None:
    ((kind, text),) = shop.start({**OLD, "b": printed("9")})
    assert kind == "code changed"
    assert text == (
        "operator b computes something else from now on: function f: `1` is now `9`. "
        "The state of c holds what it gave before"
    )


def test_an_operator_with_state_may_not_unless_it_is_accepted(shop: Shop) -> None:
    new = {**OLD, "c": printed("9", keeps_state=True, layouts=(STATE,))}
    with pytest.raises(
        PipelineError, match=r"Operator c goes on with state that something else has made.*`2` is now"
    ):
        shop.start(new)
    assert shop.home.events() == []
    ((kind, text),) = shop.start(new, accept=True)
    assert kind == "code changed" and text.endswith("That was accepted")


def test_an_operator_whose_segment_has_finished_no_batch_has_no_state_yet(shop: Shop) -> None:
    shop.record = replace(shop.record, segments=(SegmentRecord("z", ("a", "b", "c"), (), None),))
    new = {**OLD, "c": printed("9", keeps_state=True, layouts=(STATE,))}
    checkpoint = Path(shop.home.checkpoint("z"))
    for folder, text in (("offsets", "v1\n{}\n{}"), ("commits", "v1\n{}")):
        ((kind, told),) = shop.start(new)
        assert (kind, told) == (
            "code changed",
            "operator c computes something else from now on: function f: `2` is now `9`",
        )
        (checkpoint / folder).mkdir(parents=True)
        (checkpoint / folder / "0").write_text(text)
    with pytest.raises(PipelineError, match="goes on with state"):
        shop.start(new)


def test_a_refusal_does_not_promise_more_than_it_knows(shop: Shop) -> None:
    with pytest.raises(PipelineError) as told:
        shop.start({**OLD, "c": printed("9", keeps_state=True, layouts=(STATE,))})
    assert "Nothing was started, and that state is kept" in str(told.value)
    assert "nothing has changed" not in str(told.value)  # before, the home may have been mended


def test_code_that_cannot_be_compared_may_compute_something_else(shop: Shop) -> None:
    before = NodePrint((FingerprintPart("f", "bytecode of Python 3.10", "1", ""),))
    shop.record = replace(shop.record, prints=encode_prints({"b": before}))
    ((_, text),) = shop.start({"b": printed("1")})
    assert text == (
        "operator b may compute something else from now on: function f cannot be compared, because its source is "
        "not known and Python is another one"
    )


def test_other_columns_of_state_cannot_be_accepted(shop: Shop) -> None:
    other = replace(STATE, columns=(("k", "string"), ("n", "bigint")))
    for accept in (False, True):
        with pytest.raises(
            PipelineError, match="operator c wants: the state of Aggregate is now with n bigint"
        ) as told:
            shop.start({**OLD, "c": printed("2", keeps_state=True, layouts=(other,))}, accept=accept)
        assert ("--accept-changes does not help" in str(told.value)) == accept
    assert shop.home.events() == []
