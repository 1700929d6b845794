"""ResNet-50 (v1.5), as transformers builds it from its configuration.

Document 004 reports images a second and names no model. This suite chose ResNet-50, with SGD at
the usual rate of 0.1 for 256 images, scaled to the document's batch of 32.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from transformers import ResNetConfig
from transformers.models.resnet.modeling_resnet import ResNetForImageClassification

from ddp_perf.core.launch import Unit
from ddp_perf.workloads.workload import Batch, BuildContext, Synthetic, Workload, batches

_SAMPLES = 1_281_167  # the size of ImageNet's train set


def build(
    context: BuildContext, *, image_size: int, num_classes: int, width: int, channels_last: bool
) -> Workload:
    """Build it with random images and classes, cross-entropy and SGD with momentum."""
    config = ResNetConfig(
        embedding_size=width,
        hidden_sizes=[width * factor for factor in (4, 8, 16, 32)],
        num_labels=num_classes,
    )
    model = ResNetForImageClassification(config).to(context.device)
    order = torch.channels_last if channels_last else torch.contiguous_format
    model.to(memory_format=order)

    def sample(generator: torch.Generator) -> Batch:
        image = torch.randn(3, image_size, image_size, generator=generator)
        return image, torch.randint(num_classes, (), generator=generator)

    def loss(module: nn.Module, batch: Batch) -> torch.Tensor:
        images, classes = batch
        logits = module(images.contiguous(memory_format=order), return_dict=False)[0]
        return functional.cross_entropy(logits, classes)

    return Workload(
        model=model,
        batch=batches(Synthetic(_SAMPLES, sample), context),
        loss=loss,
        optimizer=lambda parameters: torch.optim.SGD(
            parameters, lr=0.0125, momentum=0.9, weight_decay=1e-4
        ),
        blocks=[layer for stage in model.resnet.encoder.stages for layer in stage.layers],
        unit=Unit(name="images"),
    )
