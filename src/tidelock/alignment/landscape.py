"""Who follows whom: jobs and subjects as a graph, and why it may have no cycle. Pure.

A job that is aligned with a subject waits for its next epoch. In a cycle of jobs everybody would wait for an epoch
that cannot come before their own, so the protocol is for acyclic landscapes only (Epoch Alignment, section 4.4.2).
Cycles inside a job are another matter: what goes around there arrives one epoch later, always.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class JobRecord:
    """A job as others see it."""

    name: str
    follows: tuple[str, ...]
    publishes: tuple[str, ...]


def find_cycle(jobs: Mapping[str, JobRecord], start: str) -> tuple[str, ...]:
    """A way from job ``start`` back to itself, as job, subject, job, ..., or nothing.

    >>> chain = {"a": JobRecord("a", ("s",), ("t",)), "b": JobRecord("b", ("t",), ("s",))}
    >>> find_cycle(chain, "a")
    ('a', 't', 'b', 's', 'a')
    """
    readers: dict[str, list[str]] = {}
    for job in jobs.values():
        for subject in job.follows:
            readers.setdefault(subject, []).append(job.name)
    ways: list[tuple[str, ...]] = [(start,)]
    seen: set[str] = set()
    while ways:
        way = ways.pop(0)
        for subject in jobs[way[-1]].publishes if way[-1] in jobs else ():
            for reader in sorted(readers.get(subject, ())):
                if reader == start:
                    return (*way, subject, reader)
                if reader not in seen:
                    seen.add(reader)
                    ways.append((*way, subject, reader))
    return ()


def drawn(cycle: tuple[str, ...]) -> str:
    """A cycle as a person reads it.

    >>> drawn(("a", "t", "b", "s", "a"))
    'a ─t─▶ b ─s─▶ a'
    """
    arrows = [f" ─{subject}─▶ {job}" for subject, job in zip(cycle[1::2], cycle[2::2], strict=True)]
    return cycle[0] + "".join(arrows)
