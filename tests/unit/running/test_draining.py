"""Going for one more epoch of a drain: it is begun everywhere, or asked for again as if nothing had been."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.spark.checkpoint.test_checkpoint import commit

from tidelock.home.home import Home
from tidelock.running.draining import Draining
from tidelock.spark.checkpoint import checkpoint
from tidelock.spark.checkpoint.checkpoint import Checkpoint

HEADS = ("left", "right")


def test_one_more_epoch_that_finds_no_room_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)
    for head in HEADS:
        folder = Path(home.checkpoint(head))
        folder.mkdir(parents=True)
        commit(folder, 0, 0, 5000)
    cutting = SimpleNamespace(segments=[SimpleNamespace(name=head, is_head=True) for head in HEADS])
    drain = Draining(SimpleNamespace(cutting=cutting), home)  # type: ignore[arg-type]
    for head in HEADS:
        drain.starts(head)
        drain.ended(head)
    write, room = checkpoint.put_file, iter([True, False, False, True])

    def put_file(*args: Any, **more: Any) -> None:
        if not next(room):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(*args, **more)

    monkeypatch.setattr(checkpoint, "put_file", put_file)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            drain.one_more()
        assert drain.last == 0, "nobody is led to an epoch that was not begun"
    assert drain.one_more() == list(HEADS)
    assert drain.last == 1
    assert [Checkpoint(None, home.checkpoint(head)).newest_begun() for head in HEADS] == [1, 1]
