"""What can be said of a command before Spark starts: starting it takes seconds, and its messages are its own."""

from __future__ import annotations

import os
from pathlib import Path

from tidelock.backup.store import BackupStore
from tidelock.cache.store import open_cells
from tidelock.coordination import check_tree_url
from tidelock.errors import PipelineError
from tidelock.extras import check_urls
from tidelock.home.holding import check_place
from tidelock.home.home import Home
from tidelock.log.store import open_store
from tidelock.pipeline.declaration import Declaration
from tidelock.pipeline.subscriptions import COORDINATOR, default_coordinator
from tidelock.preparing.preparation import PlanLike, check_plan_like, stored_plan
from tidelock.topology import Kind


def check_before_spark(
    pipeline: Declaration,
    home: Home | None = None,
    *,
    plan: PlanLike = None,
    backup: str | None = None,
    cache: str | None = None,
    out: Path | None = None,
    history: Path | None = None,
    apply: bool = False,
) -> None:
    """See that a pipeline, its plan, its home and its places could be: nothing is opened and nothing is written.

    Args:
        pipeline: what is asked about.
        home: where it runs, or is going to.
        plan: its plan.
        backup: where it is copied to.
        cache: where the state of its operators is tried out.
        out: the file that the answer goes to.
        history: a home of which something has to be known.
        apply: ``home`` is there, and nobody runs it.

    Raises:
        PipelineError: a declaration, a URL, a home or a file is wrong, or a package for it is not installed.
        PlanError: the plan is wrong.
    """
    topology = pipeline.topology()
    check_plan_like(plan, topology)
    if home is not None:
        check_place(home.root)
        stored_plan(home, topology)
        _check_places(home, [node.name for node in topology.nodes if node.kind is not Kind.SINK])
        if apply:
            _check_at_rest(home)
    _check_jobs(pipeline, None if home is None else home.as_recorded().coordinator)
    if backup is not None:
        BackupStore(backup)
    _check_cache(cache)
    if out is not None:
        check_file(out)
    if history is not None:
        Home(history).known()


def _check_places(home: Home, nodes: list[str]) -> None:
    """See that the places of a home could be, and that what those of an earlier run need is installed."""
    home.places.check_names(nodes)
    for node in nodes:
        open_store(home.log(node))
    _check_cache(home.cache)
    recorded = home.as_recorded()
    check_urls([*recorded.places.asked.values(), *recorded.places.recorded.values(), recorded.cache])


def _check_cache(url: str | None) -> None:
    if url is not None:
        open_cells(url)


def _check_at_rest(home: Home) -> None:
    home.known()
    with home.held():
        pass


def _check_jobs(pipeline: Declaration, coordinator: str | None) -> None:
    """See that other jobs could be found, and are where they were said to be."""
    if coordinator is None and COORDINATOR in os.environ and (pipeline.followed or pipeline.published):
        coordinator = default_coordinator()
    if coordinator is not None:
        check_tree_url(coordinator)
    for known in pipeline.published.values():
        if known.shared is not None:
            open_store(known.shared)
    for one in pipeline.followed.values():
        if one.home is not None:
            open_store(one.recorded_log(one.home))


def check_file(path: Path) -> None:
    """See that a file could be written.

    Raises:
        PipelineError: there is no directory for it, it is one itself, or this user may not write it.
    """
    if not path.parent.is_dir():
        raise PipelineError(f"{path} cannot be written: there is no directory {path.parent}")
    if path.is_dir():
        raise PipelineError(f"{path} cannot be written: it is a directory, give a file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise PipelineError(f"{path} cannot be written: this user may not do that")
