"""A named lease with a fencing token: at most one holder, and proof of who came later.

Theory of operation. A lease is a persistent node, and its holder is the ephemeral child ``holder``:
whoever manages to create it holds the lease until it deletes it or loses its session. The token is
the new version of the persistent node, which the holder sets once per acquisition; versions only
grow, so a later holder always has a greater token.

A holder can be late: it may be stopped for a minute between `Lease.check` and the write that the
check was for. So a resource that must never see two writers takes the token with each write and
refuses a token smaller than the greatest it has seen.

Crash points. After the child was created but before the token was drawn: the child vanishes with
the session, no token was used. Backend failure between the two: `Lease.try_acquire` called again
recognises its own child and draws another token. Only the `Tree` interface is used, so a lease is
the same on every backend. Deleting the persistent node would start the tokens again: never do it.
"""

from __future__ import annotations

import threading
import time
import uuid

from tidelock.coordination.errors import LeaseHeld, NodeExists, NoNode, SessionExpired
from tidelock.coordination.paths import join
from tidelock.coordination.tree import Node, Tree
from tidelock.errors import Fenced, PipelineError

__all__ = ["Lease"]


class Lease:
    """One contender for the lease at `path`; two contenders exclude each other even in one client.

    Acquire and release from one thread at a time; `check` and `token` are safe from any thread.
    """

    def __init__(self, tree: Tree, path: str, *, owner: str) -> None:
        """Contend for the lease at `path`; `owner` is the name that others are shown."""
        if "\n" in owner:
            raise PipelineError(f"the owner of lease {path} must be one line, not {owner!r}")
        self.path = path
        self.owner = owner
        self._tree = tree
        self._holder = join(path, "holder")
        # The random part tells two contenders of the same name apart.
        self._claim = f"{owner}\n{uuid.uuid4().hex}".encode()
        self._token: int | None = None

    @property
    def token(self) -> int:
        """The fencing token of the current acquisition; asks nobody whether it still holds.

        Raises:
            Fenced: never acquired, or released.
        """
        token = self._token
        if token is None:
            raise Fenced(f"lease {self.path} is not held by {self.owner}: acquire it first")
        return token

    def try_acquire(self) -> bool:
        """Acquire the lease if nobody has it; True if it is now, or already was, ours."""
        if self._token is not None and self._is_ours():
            return True
        self._token = None
        if not self._claim_holder():
            return False
        token = self._tree.set(self.path, self.owner.encode())
        # An operator may have deleted our claim before the token was drawn; then it is void.
        if not self._is_ours():
            return False
        self._token = token
        return True

    def acquire(self, timeout: float) -> int:
        """Acquire the lease, waiting at most `timeout` seconds for it; return the token.

        Raises:
            LeaseHeld: somebody else kept it all the time.
        """
        deadline = time.monotonic() + timeout
        changed = threading.Event()
        with self._tree.watch(self._holder, lambda _: changed.set()):
            while not self.try_acquire():
                if not changed.wait(max(0.0, deadline - time.monotonic())):
                    raise LeaseHeld(self.path, self.holder() or "nobody just now")
                changed.clear()
        return self.token

    def check(self) -> int:
        """Return the token if the lease is still ours at this moment.

        Raises:
            Fenced: it was lost, released or never acquired; stop writing.
        """
        token = self.token
        try:
            node = self._tree.find(self._holder)
        except SessionExpired as error:
            raise Fenced(self._lost(token, "its session expired")) from error
        if node is None or node.data != self._claim:
            raise Fenced(self._lost(token, f"{_owner_of(node) or 'nobody'} holds it now"))
        return token

    def release(self) -> None:
        """Let go of the lease. Idempotent, and harmless when it was lost already."""
        self._token = None
        try:
            # Ours cannot become another's between these two calls without our session being lost,
            # and then the deletion is refused.
            if self._is_ours():
                self._tree.delete(self._holder)
        except (NoNode, SessionExpired):
            pass

    def holder(self) -> str | None:
        """Return the owner name of whoever holds the lease now, or None."""
        return _owner_of(self._tree.find(self._holder))

    def _claim_holder(self) -> bool:
        try:
            self._tree.create(self._holder, self._claim, ephemeral=True, make_parents=True)
        except NodeExists:
            return self._is_ours()
        return True

    def _is_ours(self) -> bool:
        node = self._tree.find(self._holder)
        return node is not None and node.data == self._claim

    def _lost(self, token: int, why: str) -> str:
        return (
            f"lease {self.path} was lost by {self.owner} (token {token}): {why}; "
            "stop writing, and acquire it again from the newest committed state"
        )


def _owner_of(node: Node | None) -> str | None:
    """Read the owner's name from a ``holder`` node."""
    return None if node is None else node.data.decode(errors="replace").split("\n")[0]
