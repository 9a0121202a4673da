"""PyTorch models: the agents live in tensors of shape (agents, n), on any device that PyTorch supports.

The methods are those of the library, unchanged; their three verbs are operations on these tensors. Under `torchrun` each process hosts some of the agents, and
`pull` sends rows between processes.
"""

from ._host import Host
from ._kept import load_file
from ._problem import Problem
from ._ranks import Ranks

__all__ = ["Host", "Problem", "Ranks", "load_file"]
