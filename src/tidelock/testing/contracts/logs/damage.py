"""Logs that are not there, are of a newer release, or are damaged: named, and the rest stays readable."""

from __future__ import annotations

import pytest

from tidelock.epochs import Epoch
from tidelock.errors import LogCorrupt, LogNotFound, PipelineError, UnsupportedFormat
from tidelock.log import EpochLog, LogWriter
from tidelock.log.sealed import seal
from tidelock.log.store import LogStore
from tidelock.testing.contracts.logs.base import LogFixtures
from tidelock.testing.logs import SCHEMA, covers, publish


class DamageContract(LogFixtures):
    """What is refused, and how."""

    # -- bad input

    def test_a_log_that_is_not_there(self, url: str) -> None:
        with pytest.raises(LogNotFound, match=r"there is no epoch log at .* start the query that writes it"):
            EpochLog.open(url)

    def test_epochs_that_are_not_there(self, log: EpochLog, writer: LogWriter) -> None:
        publish(writer, covers(3), [3])
        with pytest.raises(PipelineError, match=r"epochs 0 to 3 were asked for, but the log holds epochs 3 to 3"):
            list(log.manifests(Epoch(-1), Epoch(3)))

    def test_a_name_that_no_backend_could_store(self, url: str) -> None:
        with pytest.raises(PipelineError, match=r"'a/b' cannot be the name of a log: use letters"):
            EpochLog.create(url, SCHEMA, name="a/b")

    def test_a_newer_format_is_refused_politely(self, url: str, store: LogStore) -> None:
        store.put("log", seal({"format": 2, "surprise": True}))
        with pytest.raises(UnsupportedFormat, match=r"format version 2.*reads up to 1: upgrade Tidelock"):
            EpochLog.open(url)

    def test_a_newer_entry_is_refused_politely(self, log: EpochLog, writer: LogWriter) -> None:
        publish(writer, covers(0), [0])
        log.store.publish(writer.token, covers(1), seal({"format": 7}))
        with pytest.raises(UnsupportedFormat, match="manifest of epoch 1 has format version 7"):
            log.manifest(covers(1))
        assert log.manifest(covers(0)).rows == 1

    def test_a_whole_document_with_other_fields_is_damage(self, url: str, store: LogStore) -> None:
        store.put("log", seal({"surprise": True}))
        with pytest.raises(LogCorrupt, match="the log's header lacks what format version 1 has"):
            EpochLog.open(url)

    def test_a_damaged_cursor_counts_as_nothing_read(self, log: EpochLog, writer: LogWriter) -> None:
        for n in range(3):
            publish(writer, covers(n), [n])
        log.store.put("cursor/c", b"{torn")
        assert log.cursors() == {"c": -1}
        assert writer.truncate() == ()

    def test_damage_is_named_and_the_rest_stays_readable(self, log: EpochLog, writer: LogWriter) -> None:
        for n in range(3):
            publish(writer, covers(n), [n])
        lost = log.manifest(covers(1)).parts[0]
        log.store.remove_parts([lost.file])
        with pytest.raises(LogCorrupt, match=rf"{log.url}: part {lost.file} of epoch 1 is missing"):
            list(log.read_part(covers(1), lost))
        verdicts = {r.last: isinstance(v, LogCorrupt) for r, v in log.verify()}
        assert verdicts == {0: False, 1: True, 2: False}
