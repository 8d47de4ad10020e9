"""Learnt rows for all nodes, spread over the workers: DGL's DistEmbedding, its optimizer, and their state."""

from typing import Any

import dgl
import torch as th

NAME = "learnt"


class Embeddings:
    """A row for each node of a homogeneous graph, in the shared memory of the worker that has the node.

    All ranks make it together, and each of them calls `step` as often as the others.

    Args:
        graph: The DistGraph.
        width: Columns.
        lr: Learning rate.
    """

    def __init__(self, graph: Any, width: int, lr: float) -> None:
        self._rows = dgl.distributed.DistEmbedding(graph.num_nodes(), width, name=NAME, init_func=_small)
        self._optimizer = dgl.distributed.optim.SparseAdagrad([self._rows], lr=lr)

    def of(self, nodes: th.Tensor, device: th.device) -> th.Tensor:
        """The rows of some nodes; what is done with them leads to gradients, which `step` applies."""
        rows: th.Tensor = self._rows(nodes, device)
        return rows

    def step(self) -> None:
        """Apply the gradients since the last step."""
        self._optimizer.zero_grad()  # the next step then forgets the gradients that it applies
        self._optimizer.step()

    def state(self) -> dict[str, Any]:
        """This rank's share: the optimizer's state, and the rows of the same nodes.

        The shares of all ranks are the whole. Nodes are numbered as in this partition.
        """
        optimizer = self._optimizer.local_state_dict()
        nodes = optimizer["emb_states"][NAME]["ids"]
        return {"optimizer": optimizer, "rows": self._rows.weight[nodes]}

    def load_state(self, state: dict[str, Any]) -> None:
        """Put this rank's share back; nobody may use any row before all ranks have done so."""
        self._optimizer.load_local_state_dict(state["optimizer"])
        self._rows.weight[state["optimizer"]["emb_states"][NAME]["ids"]] = state["rows"]


def _small(shape: Any, dtype: Any) -> th.Tensor:
    return th.zeros(shape, dtype=dtype).uniform_(-0.1, 0.1)
