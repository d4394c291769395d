"""What a store of epoch logs has to do. Every back end passes `tidelock.testing.contracts.logs`.

A store knows nothing of windows or Spark: it keeps bytes. It promises

* documents: small named values, replaced atomically;
* parts: immutable once written, durable before they are named by a manifest;
* manifests: they appear whole or not at all, and only for the writer that holds the newest token;
* that after any kill the entries still form one contiguous run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import BinaryIO, NewType, TypeVar
from urllib.parse import quote

import pyarrow as pa

from tidelock.backends import Registry
from tidelock.epochs import EpochRange
from tidelock.errors import BackendUnavailable, Fenced, PipelineError
from tidelock.urls import directory, located, masked, split

Token = NewType("Token", int)
"""A fencing token: it grows with every writer that takes the log over."""

Written = TypeVar("Written")


class LogStore(ABC):
    """The bytes of one epoch log. Pickles, so that executors can open it."""

    url: str
    """What opens the log, on any machine that can reach it and knows who it is there: it holds no credentials."""

    @property
    def shown(self) -> str:
        """The URL for people."""
        return self.url

    def share_used(self) -> float:
        """How much of the memory that the store may use is used, from 0 to 1; 0 if it has no limit of its own.

        Raises:
            BackendUnavailable: it does not answer.
        """
        return 0.0

    # -- documents

    @abstractmethod
    def get(self, name: str) -> bytes | None:
        """The document ``name``, or None. A reader sees the old or the new value, never a mixture."""

    @abstractmethod
    def put(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Replace the document ``name`` atomically; ``durable`` survives the loss of power.

        A durable cursor and the end of what it stands before are in order: `unpublish` sees it, or was before it.
        """

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Make the durable document ``name`` unless it exists; of several callers exactly one succeeds."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove the document ``name``; nothing happens if there is none."""

    @abstractmethod
    def names(self, prefix: str) -> list[str]:
        """The names of the documents that start with ``prefix``, sorted."""

    # -- parts

    @abstractmethod
    def write_part(self, name: str, write: Callable[[BinaryIO], Written]) -> Written:
        """Let ``write`` fill the part ``name``; when this returns it is durable.

        Raises:
            BackendUnavailable: no room or no connection; what was written is removed.
        """

    @abstractmethod
    def read_part(self, name: str) -> pa.Buffer | None:
        """The bytes of a part, or None if there is none."""

    @abstractmethod
    def part_names(self, prefix: str = "") -> list[str]:
        """The names of all parts that start with ``prefix``, those of dead attempts included."""

    @abstractmethod
    def remove_parts(self, names: Iterable[str]) -> None:
        """Remove parts of which it is certain that no entry names them; those that are gone are not missed."""

    @abstractmethod
    def collect_parts(self, token: Token, names: Iterable[str]) -> None:
        """Remove parts that, as far as the writer with ``token`` knows, no entry names. Atomic with its check.

        Raises:
            Fenced: a newer writer has taken over, and may have named them; nothing was changed.
        """

    # -- entries

    @abstractmethod
    def take_over(self, owner: str) -> Token:
        """Become the log's only writer: from now on every older token is `Fenced`."""

    @abstractmethod
    def holder(self) -> tuple[Token, str] | None:
        """The newest token and its owner, or None if nobody has ever written."""

    @abstractmethod
    def ranges(self) -> list[EpochRange]:
        """What the published entries cover, in order."""

    @abstractmethod
    def manifest(self, covers: EpochRange) -> bytes | None:
        """The manifest of the entry that covers exactly these epochs, or None."""

    @abstractmethod
    def publish(self, token: Token, covers: EpochRange, manifest: bytes, parts: Sequence[str] = ()) -> None:
        """Make an entry visible: atomic, durable, after its ``parts``.

        Raises:
            Fenced: a newer writer has taken over; nothing was changed.
            BackendUnavailable: no room or no connection, or one of the parts is gone; nothing was changed.
        """

    @abstractmethod
    def unpublish(self, token: Token, ranges: Iterable[EpochRange], *, finished: bool = False) -> bool:
        """Remove manifests one by one, in the order given, durably; returns whether they were removed.

        With ``finished`` only if every cursor that the log has in this moment is past all of them. Otherwise
        nothing is changed, and the answer is False.

        Raises:
            Fenced: a newer writer has taken over; nothing was changed.
        """

    def check_holds(self, token: Token) -> None:
        """See that the writer with ``token`` is the newest one.

        Raises:
            Fenced: it is not.
        """
        self.unpublish(token, ())


def fenced(shown: str, owner: str) -> Fenced:
    """What a writer is told that is no longer the newest one."""
    return Fenced(
        f"{shown}: {owner} has taken this log over; this run must stop and has written nothing. Two runs of one "
        "query at a time are the usual cause"
    )


def part_gone(shown: str, name: str, covers: EpochRange) -> BackendUnavailable:
    """What a writer is told whose store has lost rows before they were published."""
    return BackendUnavailable(
        f"{shown}: part {name} of epoch {covers} is gone although it was written: the store has lost it, and "
        "nothing was published. The epoch is computed again"
    )


_STORES: Registry[LogStore] = Registry(
    "tidelock.logs",
    {
        "file": "tidelock.log.stores.files:FileStore",
        "kafka": "tidelock.log.stores.kafka:KafkaStore",
        "kafkas": "tidelock.log.stores.kafka:KafkaStore",
        "redis": "tidelock.log.stores.redis:RedisStore",
        "rediss": "tidelock.log.stores.redis:RedisStore",
    },
)


def register_store(scheme: str, factory: Callable[[str], LogStore]) -> None:
    """Let ``factory`` open the URLs of ``scheme`` in this process.

    Spark's workers do not hear of it; a store that they shall use is declared as an entry point of its package.
    """
    _STORES.register(scheme, factory)


def join_url(base: str, name: str) -> str:
    """The URL of the log ``name`` below ``base``; options of the base stay behind the path.

    >>> join_url("file:/data/logs/", "words"), join_url("redis://host/0/trending?replicas=1", "words")
    ('file:/data/logs/words', 'redis://host/0/trending/words?replicas=1')
    """
    path, question, options = base.partition("?")
    return f"{path.rstrip('/')}/{quote(name, safe='')}{question}{options}"


def parent_url(url: str) -> str:
    """The base from which `join_url` makes ``url``.

    >>> parent_url("redis://host/0/trending/words?replicas=1")
    'redis://host/0/trending?replicas=1'
    """
    path, question, options = url.partition("?")
    return f"{path.rstrip('/').rpartition('/')[0]}{question}{options}"


def place(url: str) -> str:
    """Where a log is, without how it is reached: neither who asks nor any option.

    >>> place("redis://me:secret@host/0/words?timeout=2") == place("redis://host/0/words")
    True
    >>> place("file:/data/a b") == place("file:///data/a%20b") == place("/data/a b")
    True
    """
    parts = split(located(url))
    if parts.scheme == "file":
        return str(directory(url))
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def last_name(url: str) -> str:
    """The last part of the path of a URL.

    >>> last_name("redis://host/0/trending/words?replicas=1")
    'words'
    """
    return located(url).partition("?")[0].rstrip("/").rpartition("/")[2]


def open_store(url: str) -> LogStore:
    """The store that ``url`` names; a plain path means ``file:``.

    Raises:
        PipelineError: no backend answers for the URL's scheme, or what it needs is not installed.
    """
    url = located(url)
    factory = _STORES.find(url)
    if factory is None:
        known = ", ".join(f"{name}:" for name in _STORES.schemes())
        raise PipelineError(f"no log store for {masked(url)!r}: the scheme must be one of {known}")
    return factory(url)
