"""The subject of a case: a workload with its data, a script as it is, or a collective."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

# The arguments of the package's own workloads, as a suite file states them, without torch.
#
# Each struct contains the arguments of the builder of that name in ``ddp_perf.workloads``.


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

# The source of a case's batches.


DATA_FOLDER = "DDP_PERF_DATA"  # the environment variable that names the folder of real texts
Source = Literal["synthetic", "files"]


class DataOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the data. Default: one batch of random samples, made on the device beforehand."""

    num_workers: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(
            description="Measure data loading: every step takes its batch from a DataLoader with"
            " so many worker processes (0: it loads in the rank itself). null: one batch, made"
            " before the steps."
        ),
    ] = None
    source: Annotated[
        Source,
        Meta(
            description="files: the published texts in the folder that the environment variable"
            " DDP_PERF_DATA names; set it, and every suite of texts reads them."
        ),
    ] = "synthetic"

    def chosen(self) -> dict[str, int | str]:
        """Return the options that differ from their default, by name."""
        default, given = msgspec.structs.asdict(DataOptions()), msgspec.structs.asdict(self)
        return {name: value for name, value in given.items() if value != default[name]}


def has_texts(workload: str) -> bool:
    """Return whether the workload is one of the package's own and trains on texts."""
    return workload in MODELS and "dataset" in MODELS[workload].__struct_fields__


# A training script that is measured as it is: its file, its arguments, what ends a step.


BY_OPTIMIZER = "optimizer"


class ScriptRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a script by each rank, as torchrun would run it."""

    script: str  # a path from the root of the project on, as "train.py", or a module
    args: tuple[str, ...]  # with the sizes of the case
    # With {world_size} where the suite has it, for the fingerprint: filled in, each number of ranks
    # would be other work. Empty: the args have none. Of the variables those that have it.
    args_of_any_ranks: tuple[str, ...] = ()
    env_of_any_ranks: tuple[tuple[str, str], ...] = ()
    samples: int  # of a step, over all ranks
    # What ends a step: the first optimizer that steps, or the return of a "module:function".
    steps_by: str = BY_OPTIMIZER
    # Whether it works in a private tree of links, which is removed after the launch.
    scratch: bool = False

    @property
    def is_module(self) -> bool:
        """True if it is run as ``python -m`` does."""
        return not self.script.endswith(".py")

    @property
    def name(self) -> str:
        """The name of the file without its folders and suffix, or the module's name."""
        return self.script if self.is_module else self.script.rpartition("/")[2][: -len(".py")]


# A collective that is measured by itself: its kind, its size, and its calls in a step.


CollectiveKind = Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast"]
FLOAT32 = 4  # bytes of a value

_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_MOST_CALLS = 20  # nccl-tests' own number of iterations between two readings of its clock
_BYTES_PER_STEP = 4 * 2**20


class CollectiveStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that consists of calls of one collective on float32 values."""

    kind: CollectiveKind
    payload: int  # bytes, as nccl-tests counts them: see `ddp_perf.stats.link`
    calls: int  # of a step, one after the other


def calls_of(payload: int) -> int:
    """Return the number of calls in a step: as many as move 4 MiB, at least 1 and at most 20.

    A step must be long for its clock. A CUDA event resolves 0.5 µs and takes a few µs to record,
    which is too much beside one call of 10 µs.
    """
    return max(1, min(_MOST_CALLS, _BYTES_PER_STEP // payload))


def parse_size(text: str) -> int:
    """Return the bytes of a text such as ``64KiB`` (65536)."""
    return int(text[:-3]) * _UNITS[text[-3:]]


def size_text(size: int) -> str:
    """Return a size in bytes as text, in the largest unit that gives a whole number: ``64KiB``.

    `size` is a multiple of 1 KiB.
    """
    unit = max((unit for unit in _UNITS if size % _UNITS[unit] == 0), key=_UNITS.__getitem__)
    return f"{size // _UNITS[unit]}{unit}"
