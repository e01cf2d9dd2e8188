"""diffsim: whose derivative does a simulator return? Referent, realization and retention, one argument each.

>>> from diffsim import Adjoint
>>> str(Adjoint())
'executed/ad/store-all'
"""

from diffsim.adjoint import AD, Adjoint, AdjointSolve, Continuous, Converged, CustomAdjoint, Executed
from diffsim.door import supported, why_not
from diffsim.receipt import Receipt, rollout_with_receipt
from diffsim.retention import Binomial, Checkpoint, Recompute, Reverse, StoreAll
from diffsim.rollout import rollout, trajectory
from diffsim.system import System

__all__ = [
    "AD",
    "Adjoint",
    "AdjointSolve",
    "Binomial",
    "Checkpoint",
    "Continuous",
    "Converged",
    "CustomAdjoint",
    "Executed",
    "Receipt",
    "Recompute",
    "Reverse",
    "StoreAll",
    "System",
    "rollout",
    "rollout_with_receipt",
    "supported",
    "trajectory",
    "why_not",
]
