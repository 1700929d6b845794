"""Edits of one line in the user's model of tests/data/work, or in its suite."""

from __future__ import annotations

from typing import NamedTuple

MODEL, SUITE = "user_model.py", "suite.yaml"
COMPILED = (SUITE, "precision: fp32", "precision: fp32\ncompile: true")
AUTOCAST = (SUITE, "precision: fp32", "precision: bf16")
LIBRARY_OPTIMIZER = (MODEL, "Optimizer(parameters", "torch.optim.AdamW(parameters")


class Edit(NamedTuple):
    """An edit: the text ``old`` of a file becomes ``new``. ``line`` is what must be named.

    ``given`` is an edit of the side that it is compared with, and of both.
    """

    name: str
    old: str
    new: str
    line: str  # a part of the named line, or of the changed option
    file: str = MODEL
    given: tuple[str, str, str] | None = None


def _before(line: str, added: str) -> tuple[str, str]:
    """Return an edit that adds a line before an indented one."""
    indent = line[: len(line) - len(line.lstrip())]
    return line, f"{indent}{added}\n{line}"


HEAVIER = (
    Edit("item", *_before("    return losses", "losses.item()"), "losses.item()"),
    Edit("zeroed gradients", "set_to_none=True)\n", "set_to_none=False)\n", "set_to_none=False"),
    Edit("no foreach", "foreach=True", "foreach=False", "foreach=False", given=LIBRARY_OPTIMIZER),
    Edit("contiguous", "1, 4)\n", "1, 4).contiguous()\n", ".contiguous()"),
    Edit("float", "self.out(joined)", "self.out(joined.float())", "joined.float()", given=AUTOCAST),
    Edit(
        "forward twice", *_before("    logits = module(tokens)", "module(tokens)"), "module(tokens)"
    ),
    # What is kept is named by the line that made it, which was not edited.
    Edit(
        "kept tensor",
        *_before("        return logits", "LAST.append(logits)"),
        "memory kept after the step",
    ),
    Edit(
        "metrics over all ranks",
        *_before("    return losses", "torch.distributed.all_reduce(losses.detach().clone())"),
        "all_reduce(",
    ),
    Edit("unused parameters", "parameters: false", "parameters: true", "find_unused", file=SUITE),
    Edit("buffers", "buffers: false", "buffers: true", "broadcast_buffers", file=SUITE),
    Edit(
        "clipping",
        *_before(
            "        return super().step(closure)",
            'nn.utils.clip_grad_norm_(self.param_groups[0]["params"], 1.0)',
        ),
        "clip_grad_norm_",
    ),
    Edit(
        "dropout",
        *_before("            nn.Linear(4 * WIDTH, WIDTH),", "nn.Dropout(0.1),"),
        "nn.Dropout",
    ),
    Edit(
        "loop over samples",
        "logits = module(tokens)",
        "logits = torch.cat([module(one) for one in tokens.split(1)])",
        "for one in tokens",
    ),
    Edit(
        "hook on every module",
        *_before(
            "    shape = (", "[m.register_forward_hook(lambda *_: None) for m in model.modules()]"
        ),
        "register_forward_hook",
    ),
    Edit("smaller buckets", "bucket_cap_mb: 25", "bucket_cap_mb: 0.1", "bucket_cap_mb", file=SUITE),
    Edit(
        "attention by hand",
        "functional.scaled_dot_product_attention(query, key, value)",
        "(query @ key.transpose(-1, -2) / (width // HEADS) ** 0.5).softmax(-1) @ value",
        ".softmax(-1) @ value",
    ),
    Edit(
        "graph break",
        *_before("        return hidden + self.feed_forward(hidden)", 'print("forward")'),
        'print("forward")',
        given=COMPILED,
    ),
    Edit(
        "recompilation",
        "batch=(tokens, targets)",
        "batch=((tokens[:n], targets[:n]) for n in [2, 4, 6, 8] * 100)",
        "batch=(",
        given=COMPILED,
    ),
    Edit(
        "fp32 in an autocast region",
        "        return self.out(joined)",
        '        with torch.autocast("cpu", enabled=False): return self.out(joined.float())',
        "enabled=False",
        given=AUTOCAST,
    ),
    Edit(
        "second optimizer step",
        *_before("        return super().step(closure)", "super().step(closure)"),
        "super().step(closure)",
    ),
    Edit("copy to the host", *_before("    return losses", "losses.detach().cpu()"), ".cpu()"),
    Edit(
        "wait for the device",
        *_before("    return losses", "torch.cuda.synchronize()"),
        "synchronize()",
    ),
    Edit(
        "a tensor that is replaced in each step",
        *_before("        return logits", "LAST[:] = [logits]"),
        "memory that the step before holds",
    ),
)

NEUTRAL = (
    Edit("a renamed variable", "mixed", "projected", ""),
    Edit("a renamed class", "Attention", "SelfAttention", ""),
    Edit("a renamed module", "feed_forward", "mlp", ""),
    Edit("a renamed argument", "hidden", "state", ""),
    Edit("a comment", "LAST = []", "LAST = []\n\n# What follows is a model.\n", ""),
    Edit(
        "a docstring",
        "class Block(nn.Module):",
        'class Block(nn.Module):\n    """A block."""\n',
        "",
    ),
    Edit(
        "independent lines in another order",
        "    tokens = torch.randint(VOCABULARY, shape, device=context.device)\n"
        "    targets = torch.randint(VOCABULARY, shape, device=context.device)\n",
        "    targets = torch.randint(VOCABULARY, shape, device=context.device)\n"
        "    tokens = torch.randint(VOCABULARY, shape, device=context.device)\n",
        "",
    ),
    Edit(
        "another seed", "    model = Model()", "    torch.manual_seed(7)\n    model = Model()", ""
    ),
    Edit(
        "another way to write it",
        "hidden = hidden + self.attention",
        "hidden = self.attention(self.norm(hidden)) + hidden\n        #",
        "",
    ),
    Edit("another learning rate", "lr=1e-3", "lr=3e-4", ""),
    Edit(
        "an extracted function",
        "attended.transpose(1, 2).reshape(batch, length, width)",
        "(lambda heads: heads.transpose(1, 2).reshape(batch, length, width))(attended)",
        "",
    ),
)

# Edits of the workloads that are included: the suite, the file, and the line.
INCLUDED = (
    ("cpu_quick.yaml", Edit("mlp", "module(inputs)", "module(inputs.clone())", "inputs.clone()")),
    (
        "cpu/fsdp_scaling.yaml",
        Edit("gpt", "1, 4)  #", "1, 4).contiguous()  #", ".permute(2, 0, 3, 1, 4).contiguous()"),
    ),
    (
        "cpu/text_transformer_agnews.yaml",
        Edit("text_transformer", "layer(hidden,", "layer(2 * hidden,", "layer(2 * hidden,"),
    ),
)
