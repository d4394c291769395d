"""Where the logs of a pipeline are kept: all below one URL, or those of some nodes elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from tidelock.errors import PipelineError
from tidelock.log.store import join_url, parent_url
from tidelock.topology.names import EVERY, suggestion

LogsLike = str | Mapping[str, str] | None
"""A URL below which all logs are kept, or one for each node, with `*` for the others."""


@dataclass(frozen=True)
class LogPlaces:
    """Whom to ask for the URL of a log: what was asked for, then what an earlier run did, then the default.

    >>> places = LogPlaces.of({"words": "redis://host/0/job?replicas=1", "*": "file:/data"}, "file:/home/logs")
    >>> places.url("words"), places.url("counts")
    ('redis://host/0/job/words?replicas=1', 'file:/data/counts')
    """

    default: str
    """The URL below which logs are kept that nobody said anything about."""
    asked: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[str, str] = field(default_factory=dict)
    """The URLs of logs that exist."""

    @classmethod
    def of(cls, logs: LogsLike, default: str) -> LogPlaces:
        """The places that a user asks for."""
        asked = {EVERY: logs} if isinstance(logs, str) else dict(logs or {})
        return cls(default, asked)

    def url(self, node: str) -> str:
        """The URL of the log of ``node``."""
        asked = self.asked.get(node) or self.asked.get(EVERY)
        if asked is not None:
            return join_url(asked, node)
        return self.recorded.get(node) or join_url(self.default, node)

    def as_recorded(self, urls: Mapping[str, str]) -> LogPlaces:
        """These places, with the logs of an earlier run where they are unless another place was asked for.

        A log that is new is kept where all the others are; if they are in several places, at the default.
        """
        parents = {parent_url(url) for url in urls.values()}
        default = next(iter(parents)) if len(parents) == 1 else self.default
        return replace(self, default=default, recorded=dict(urls))

    def check(self, nodes: Collection[str], written: Collection[str]) -> None:
        """See that every node for which a place was asked has a log.

        Raises:
            PipelineError: it is not one of ``nodes``, or not one of those whose log is ``written``.
        """
        for node in sorted(self.asked.keys() - {EVERY} - set(written)):
            if node not in nodes:
                raise PipelineError(
                    f"a place is given for the log of {node}, but there is no source or operator of that name: "
                    f"{suggestion(node, written)}"
                )
            raise PipelineError(
                f"a place is given for the log of {node}, but under this plan it has none: the logs are those of "
                f"{', '.join(written) or 'nobody'}"
            )
