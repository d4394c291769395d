"""The methods of FastRecover: dynamic programming over steps of the budget, for chains and for trees. Pure."""

from tidelock.planning.thesis.chain import chain_dp
from tidelock.planning.thesis.redistribution import chain_dp_refined
from tidelock.planning.thesis.tree import tree_dp

__all__ = ["chain_dp", "chain_dp_refined", "tree_dp"]
