"""The arguments of the suite's own models, without the models: read where torch is not."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Size = Annotated[int, Meta(ge=1)]


class MlpModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A feed-forward network: Linear and ReLU in turn, Linear last."""

    input_dim: Annotated[Size, Meta(description="Features of a sample.")] = 4096
    hidden_dim: Annotated[Size, Meta(description="Width of the hidden layers.")] = 4096
    output_dim: Annotated[Size, Meta(description="Outputs of a sample.")] = 2048
    num_layers: Annotated[Size, Meta(description="Linear layers, the last one included.")] = 2


MODELS: dict[str, type[msgspec.Struct]] = {"mlp": MlpModel}
