"""`tidelock subjects [show NAME]`: what jobs publish for others, and who reads it at which epoch."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tidelock.alignment.machine import AlignmentState
from tidelock.cli.commands.log_show import epochs_text, moment_text, plain_table
from tidelock.cli.exits import GOOD
from tidelock.cli.pictures.subject_facts import Facts, subject_facts, subjects_facts
from tidelock.credentials import without_credentials
from tidelock.errors import LogNotFound
from tidelock.log import EpochLog
from tidelock.pipeline.subscriptions import default_coordinator, directory


def subjects(args: argparse.Namespace) -> int:
    """Answer `tidelock subjects`."""
    with directory(args.coordinator) as known:
        facts = subjects_facts(known)
    where = without_credentials(args.coordinator or default_coordinator())
    if args.json:
        print(json.dumps({"coordinator": where, "subjects": facts}))
        return GOOD
    # A place is a word, however narrow the screen is: what is printed may be copied.
    console = Console(highlight=False, soft_wrap=not facts)
    console.print(_list(facts) if facts else f"nothing is published in {where}")
    return GOOD


def show(args: argparse.Namespace) -> int:
    """Answer `tidelock subjects show`."""
    with directory(args.coordinator) as known:
        facts = subject_facts(known, args.subject, args.last)
    if args.json:
        print(json.dumps(facts))
        return GOOD
    console = Console(highlight=False)
    for page in (_summary(facts), _producers(facts), _consumers(facts), _one_by_one(facts), _epochs(facts)):
        if page is not None:
            console.print(page, "")
    return GOOD


def forget(args: argparse.Namespace) -> int:
    """Answer `tidelock subjects forget`.

    Raises:
        PipelineError: there is no such job, or it runs.
    """
    with directory(args.coordinator) as known:
        job = known.job(args.job)
        logs = {name: known.subject(name).endpoint for name in job.follows if known.has_subject(name)}
        known.forget(args.job)
    let_go = []
    for name, url in logs.items():
        try:
            EpochLog.open(url).forget(job.follows[name])
        except LogNotFound:
            continue
        let_go.append(name)
    if args.json:
        print(json.dumps({"job": args.job, "withdrawn": list(job.publishes), "let_go": let_go}))
    else:
        waits = f"; {', '.join(let_go)} no longer wait for it" if let_go else ""
        print(f"{args.job} is forgotten{waits}")
    return GOOD


def _list(facts: list[Facts]) -> RenderableType:
    table = plain_table("subject", "epochs", "produced by", "followed by")
    for fact in facts:
        held = "none yet" if fact["newest"] is None else f"{fact['oldest']} to {fact['newest']}"
        who = (", ".join(fact["producers"]), ", ".join(fact["consumers"]) or "nobody")
        table.add_row(Text(fact["subject"], style="bold"), held, *map(Text, who))
    return table


def _summary(facts: Facts) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_row("subject", Text(facts["subject"]))
    grid.add_row("endpoint", Text(facts["endpoint"] + ("  (shared by its producers)" if facts["shared"] else "")))
    grid.add_row("columns", Text(", ".join(f"{c['name']} {c['type']}" for c in facts["columns"])))
    return grid


def _producers(facts: Facts) -> RenderableType:
    table = plain_table("producer", "runs", "newest own epoch")
    for fact in facts["producers"]:
        table.add_row(Text(fact["job"]), _yes(fact["alive"]), _number(fact["newest"]))
    return table


def _consumers(facts: Facts) -> RenderableType | None:
    if not facts["consumers"]:
        return None
    table = plain_table("consumer", "runs", "state", "finished epoch", "behind", "epochs in a batch")
    for fact in facts["consumers"]:
        cells = (_yes(fact["alive"]), fact["state"], _number(fact["epoch"]), str(fact["lag"]), _at_once(fact))
        table.add_row(Text(fact["job"]), *cells)
    return table


def _at_once(fact: Facts) -> str:
    if fact["state"] != AlignmentState.ALIGNED.value:
        return "all there are"
    return "1" if fact["one_by_one"] else f"1, or up to {fact['epochs_per_batch']}"


def _one_by_one(facts: Facts) -> RenderableType | None:
    """For each consumer that takes epochs one by one when it is aligned, why."""
    whys = [
        f"{fact['job']} takes one epoch in a batch when it is aligned, however far behind: {fact['one_by_one']}"
        for fact in facts["consumers"]
        if fact["one_by_one"]
    ]
    return Text("\n".join(whys)) if whys else None


def _epochs(facts: Facts) -> RenderableType | None:
    if not facts["epochs"]:
        return None
    jobs = [fact["job"] for fact in facts["consumers"]]
    table = plain_table(
        "epoch", "state", "rows", "published (UTC)", "made from", *(f"epoch of {job}" for job in jobs)
    )
    for entry in facts["epochs"]:
        taken = [_pair(entry["taken_by"].get(job)) for job in jobs]
        table.add_row(
            epochs_text(entry["epoch"]),
            entry["state"],
            "" if entry["rows"] is None else f"{entry['rows']:,}",
            "" if entry["published_at"] is None else moment_text(entry["published_at"]),
            Text(", ".join(f"{part['log']} {_pair(part['epochs']) or 'not yet'}" for part in entry["made_from"])),
            *taken,
        )
    return table


def _pair(epochs: Any) -> str:
    return "" if epochs is None else epochs_text(epochs)


def _yes(runs: bool) -> str:
    return "yes" if runs else "no"


def _number(epoch: int | None) -> str:
    return "none yet" if epoch is None or epoch < 0 else str(epoch)
