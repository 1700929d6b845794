"""The real scripts that are tried. Nothing of them is kept here: the user has the repositories."""

from __future__ import annotations

from benchmarks import script_data
from benchmarks.script_values import Edit, RealScript, Repository

_EXAMPLES = Repository(
    owner="pytorch",
    name="examples",
    commit="77f55b912142e11fcfdf5b530231fb9c52f181e8",
    licence="BSD-3-Clause",
)
_NANOGPT = Repository(
    owner="karpathy",
    name="nanoGPT",
    commit="3adf61e154c3fe3fca428ad6bc3818b27a3b8291",
    licence="MIT",
)
_MINGPT = Repository(
    owner="karpathy",
    name="minGPT",
    commit="37baab71b9abea1b76ab957409a1cc2fbfba8a26",
    licence="MIT",
)
_ACCELERATE = Repository(
    owner="huggingface",
    name="accelerate",
    commit="16cb6eb80dd9aa8b4df1a63ef57863e455d53b83",
    licence="Apache-2.0",
)
_LIGHTNING = Repository(
    owner="Lightning-AI",
    name="pytorch-lightning",
    commit="7f0c3436cd3f6ad3753125672024fc415cbcb414",
    licence="Apache-2.0",
)
_ALPACA = Repository(
    owner="tatsu-lab",
    name="stanford_alpaca",
    commit="761dc5bfbdeeffa89b8bff5d038781a4055f796a",
    licence="Apache-2.0",
)
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HOME": "huggingface", "TOKENIZERS_PARALLELISM": "false"}

SCRIPTS = (
    RealScript(
        name="nanogpt",
        repository=_NANOGPT,
        folder=".",
        script="train.py",
        args=(
            "--dataset=tiny",
            "--backend=gloo",
            "--device=cpu",
            "--dtype=float32",
            "--compile=False",
            "--eval_iters=1",
            "--gradient_accumulation_steps={world_size}",
            "--batch_size={batch_size}",
            "--block_size=32",
            "--n_layer=3",
            "--n_head=4",
            "--n_embd=96",
        ),
        batch_size=12,
        for_cpu=(
            Edit(
                file="train.py", line="device = f'cuda:{ddp_local_rank}'", becomes="device = 'cpu'"
            ),
            Edit(file="train.py", line="torch.cuda.set_device(device)", becomes="pass"),
            Edit(
                file="train.py",
                line="model = DDP(model, device_ids=[ddp_local_rank])",
                becomes="model = DDP(model)",
            ),
        ),
        data=script_data.tokens,
        slower=Edit(file="model.py", line="x = block(x)", becomes="x = block(block(x))"),
        causes=("compute",),
        own_times=r"^iter (?P<step>\d+): loss .*, time (?P<ms>[\d.]+)ms",
    ),
    RealScript(
        name="mingpt",
        repository=_MINGPT,
        folder=".",
        script="projects/adder/adder.py",
        args=(
            "--trainer.batch_size={batch_size}",
            "--trainer.num_workers=0",
            "--model.model_type=gpt-micro",
        ),
        world_sizes=(1,),
        batch_size=32,
        slower=Edit(file="mingpt/model.py", line="x = block(x)", becomes="x = block(block(x))"),
        causes=("compute",),
        own_times=r"^iter_dt (?P<ms>[\d.]+)ms; iter (?P<step>\d+)",
        own_times_lag=1,
    ),
    RealScript(
        name="ddp_tutorial",
        repository=_EXAMPLES,
        folder="distributed/ddp-tutorial-series",
        script="multigpu_torchrun.py",
        args=("1000", "1000", "--batch_size={batch_size}"),
        batch_size=256,
        for_cpu=(
            Edit(
                file="multigpu_torchrun.py",
                line='torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',
                becomes="pass",
            ),
            Edit(file="multigpu_torchrun.py", line='"nccl"', becomes='"gloo"'),
            Edit(
                file="multigpu_torchrun.py",
                line='self.gpu_id = int(os.environ["LOCAL_RANK"])',
                becomes='self.gpu_id = "cpu"',
            ),
            Edit(
                file="multigpu_torchrun.py",
                line="DDP(self.model, device_ids=[self.gpu_id])",
                becomes="DDP(self.model)",
            ),
        ),
        slower=Edit(
            file="multigpu_torchrun.py",
            line="            source = source.to(self.gpu_id)",
            becomes='            __import__("time").sleep(0.01)\n'
            "            source = source.to(self.gpu_id)",
        ),
        causes=("data",),
    ),
    RealScript(
        name="fsdp2",
        repository=_EXAMPLES,
        folder="distributed/FSDP2",
        script="example.py",
        args=("--explicit-prefetching",),
        batch_size=32,
        for_cpu=(
            Edit(
                file="example.py",
                line="if not verify_min_gpu_count",
                becomes="if False and not verify_min_gpu_count",
            ),
            Edit(file="example.py", line=", device_id=device)", becomes=")"),
            Edit(file="example.py", line="for _ in range(10):", becomes="for _ in range(1000):"),
        ),
        slower=Edit(file="example.py", line="n_layers=10", becomes="n_layers=18"),
        causes=("compute", "communication", "more communication", "other collectives"),
    ),
    RealScript(
        name="trainer",
        repository=_ALPACA,
        folder=".",
        script="train.py",
        packages=("transformers", "accelerate"),
        args=(
            "--model_name_or_path=tiny",
            "--data_path=instructions.json",
            "--model_max_length=128",
            "--output_dir=out",
            "--use_cpu=True",
            "--ddp_backend=gloo",
            "--max_steps=1000",
            "--logging_steps=1000",
            "--save_strategy=no",
            "--report_to=none",
            "--gradient_accumulation_steps=2",
            "--per_device_train_batch_size={batch_size}",
        ),
        batch_size=4,
        samples_per_step="2 * {world_size} * {batch_size}",
        env=_OFFLINE,
        data=script_data.instructions,
        slower=Edit(
            file="train.py",
            line="        input_ids, labels = tuple(",
            becomes='        __import__("time").sleep(0.05)\n        input_ids, labels = tuple(',
        ),
        causes=("data",),
    ),
    RealScript(
        name="accelerate",
        repository=_ACCELERATE,
        folder="examples",
        script="nlp_example.py",
        packages=("transformers", "accelerate", "datasets", "evaluate"),
        args=("--cpu",),
        batch_size=16,
        env=_OFFLINE,
        data=script_data.sentence_pairs,
        slower=Edit(
            file="nlp_example.py",
            line="            loss = outputs.loss\n",
            becomes="            loss = outputs.loss + 0 * model(**batch).loss\n",
        ),
        causes=("compute",),
    ),
    RealScript(
        name="lightning",
        repository=_LIGHTNING,
        folder="examples/pytorch/basics",
        script="transformer.py",
        packages=("lightning",),
        args=(),
        batch_size=20,
        env={"PL_TRAINER_DEVICES": "{world_size}", "PL_TRAINER_ACCELERATOR": "cpu"},
        data=script_data.wikitext,
        slower=Edit(
            file="transformer.py",
            line='        self.log("train_loss"',
            becomes="        loss = loss + 0 * self.model(input, target).sum()\n"
            '        self.log("train_loss"',
        ),
        causes=("compute",),
    ),
)
