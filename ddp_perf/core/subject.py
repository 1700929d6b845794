"""The arguments of the package's own workloads, as a suite file states them, without torch.

Each struct contains the arguments of the builder of that name in ``ddp_perf.workloads``.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Size = Annotated[int, Meta(ge=1)]
TextDataset = Literal["ag_news", "imdb"]


class MlpModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A feed-forward network: Linear and ReLU alternate, and the last layer is Linear."""

    input_dim: Annotated[Size, Meta(description="Features of a sample.")] = 4096
    hidden_dim: Annotated[Size, Meta(description="Width of the hidden layers.")] = 4096
    output_dim: Annotated[Size, Meta(description="Outputs of a sample.")] = 2048
    num_layers: Annotated[Size, Meta(description="Linear layers, the last one included.")] = 2


# The common arguments of transformers, with the names of document 003's files.
_VocabSize = Annotated[int, Meta(ge=3, description="Rows of the table of token vectors.")]
_Width = Annotated[Size, Meta(description="Width of a token's vector; a multiple of n_heads.")]
_Heads = Annotated[Size, Meta(description="Attention heads of a layer.")]
_Layers = Annotated[Size, Meta(description="Transformer layers.")]
_FeedForward = Annotated[Size, Meta(description="Width of a layer's feed-forward part.")]
_SequenceLength = Annotated[int, Meta(ge=2, description="Tokens of a sample.")]
_Dropout = Annotated[float, Meta(ge=0, lt=1, description="Share of activations dropped.")]
_Dataset = Annotated[
    TextDataset,
    Meta(description="The texts: ag_news (news, 4 classes) or imdb (reviews, 2 classes)."),
]


class _TransformerModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    d_model: _Width
    n_heads: _Heads

    def __post_init__(self) -> None:
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model {self.d_model} is no multiple of n_heads {self.n_heads}")


class DistilbertModel(_TransformerModel, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """DistilBERT for sequence classification; the defaults are the base size."""

    dataset: _Dataset = "ag_news"
    max_seq_len: Annotated[_SequenceLength, Meta(le=512)] = 128
    vocab_size: _VocabSize = 30_522
    d_model: _Width = 768
    n_heads: _Heads = 12
    num_layers: _Layers = 6
    dim_feedforward: _FeedForward = 3072
    dropout: _Dropout = 0.1


class TextTransformerModel(
    _TransformerModel, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """An encoder with a linear classifier; the defaults are document 003's first AG News model."""

    dataset: _Dataset = "ag_news"
    max_seq_len: _SequenceLength = 128
    vocab_size: _VocabSize = 30_522
    d_model: _Width = 128
    n_heads: _Heads = 4
    num_layers: _Layers = 2
    dim_feedforward: _FeedForward = 256
    dropout: _Dropout = 0.1


class Resnet50Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """ResNet-50; the defaults are those of ImageNet."""

    image_size: Annotated[Size, Meta(description="Height and width of an image, pixels.")] = 224
    num_classes: Annotated[Size, Meta(description="Classes of images.")] = 1000
    width: Annotated[
        Size, Meta(description="Channels after the first layer; the stages have 4 to 32 times it.")
    ] = 64
    channels_last: Annotated[
        bool, Meta(description="Keep images and weights in the order NHWC in memory.")
    ] = False


class GptModel(_TransformerModel, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decoder in the shape of GPT-2; the defaults are its smallest size."""

    max_seq_len: _SequenceLength = 1024
    vocab_size: _VocabSize = 50_257
    d_model: _Width = 768
    n_heads: _Heads = 12
    num_layers: _Layers = 12


class LlamaModel(_TransformerModel, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decoder in the shape of Llama; the defaults are the size of TinyLlama 1.1B."""

    max_seq_len: _SequenceLength = 2048
    vocab_size: _VocabSize = 32_000
    d_model: _Width = 2048
    n_heads: _Heads = 32
    n_kv_heads: Annotated[
        Size, Meta(description="Heads of keys and values, which n_heads is a multiple of.")
    ] = 4
    num_layers: _Layers = 22
    dim_feedforward: _FeedForward = 5632

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_heads {self.n_heads} is no multiple of n_kv_heads {self.n_kv_heads}"
            )
        if self.d_model // self.n_heads % 2:
            raise ValueError(
                f"d_model {self.d_model} ÷ n_heads {self.n_heads} is odd; rotary embedding turns"
                " pairs"
            )


MODELS: dict[str, type[msgspec.Struct]] = {
    "mlp": MlpModel,
    "distilbert": DistilbertModel,
    "text_transformer": TextTransformerModel,
    "resnet50": Resnet50Model,
    "gpt": GptModel,
    "llama": LlamaModel,
}
# Workloads that need a package of the optional extra `models`.
PACKAGES: dict[str, str] = {"distilbert": "transformers", "resnet50": "transformers"}
