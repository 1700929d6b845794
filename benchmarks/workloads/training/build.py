"""What each rank trains."""

from ddp_perf.workloads.workload import BuildContext, Workload

from .data import batches
from .loss import loss_of
from .model import Net
from .optimizer import Optimizer


def build(context: BuildContext) -> Workload:
    """Build the model with its batches, its loss and its optimizer."""
    return Workload(
        model=Net().to(context.device),
        batch=batches(context),
        loss=loss_of,
        optimizer=lambda parameters: Optimizer(parameters, lr=1e-4),
    )
