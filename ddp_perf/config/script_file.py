"""The suite file of a script, made from the command line that runs the script."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.config.formula import SIZES
from ddp_perf.config.loading import find_suites
from ddp_perf.config.suite import ScriptSuite, as_name
from ddp_perf.config.yaml_file import read_yaml, yaml_text
from ddp_perf.errors import ConfigError

PLACEHOLDER = "{batch_size}"
# An option that states the batch of one rank, as in --training.local_batch_size.
_BATCH_OPTION = re.compile(
    r"--?([a-z][\w.-]*\.)?(b|bs|((local|micro|train|per-device|per-device-train)-)?batch-size)"
)
_TEXT_IN_BRACES = re.compile(r"(?<!\{)\{([A-Za-z_]\w*)\}(?!\})")
_ORDER = (
    *("suite", "tier", "script", "args", "world_sizes", "batch_sizes", "samples_per_step", "steps"),
)


class StepSamples(msgspec.Struct, frozen=True, kw_only=True):
    """The samples of a step, as far as the arguments of a script state them."""

    args: tuple[str, ...]  # of the script, with the placeholder in place of its batch size
    batch_size: int  # 1: it is unknown
    per_step: str | int  # the formula of the suite file
    source: str  # the option that states the batch size; "": there is none


def find_samples(args: Sequence[str], formula: str | None) -> StepSamples:
    """Find the batch size of a rank among the arguments. ``formula`` is the user's, if any.

    Braces around another name are doubled: the script gets them as they are. Raises ConfigError for
    a batch size that is not there.
    """
    args = [_TEXT_IN_BRACES.sub(_doubled, argument) for argument in args]
    for at, argument in enumerate(args):
        if PLACEHOLDER in argument:
            raise ConfigError(
                f"{argument}: its value is not known yet; write a number, which the suite file"
                f" replaces by {PLACEHOLDER}"
            )
        name, equals, value = argument.partition("=")
        if not _BATCH_OPTION.fullmatch(name.lower().replace("_", "-")):
            continue
        place = at if equals else at + 1
        value = value if equals else "".join(args[place : place + 1])
        if value.isdecimal() and int(value) > 0:
            args[place] = f"{name}={PLACEHOLDER}" if equals else PLACEHOLDER
            size, source = int(value), name
            break
    else:
        size, source = 1, ""
        if formula is not None and PLACEHOLDER in formula:
            raise ConfigError(
                f"--samples-per-step {formula}: no argument of the script states its batch size;"
                " write a number"
            )
    per_step = formula or default_formula(source)
    return StepSamples(
        args=tuple(args),
        batch_size=size,
        per_step=int(per_step) if per_step.isdecimal() else per_step,
        source=source,
    )


def _doubled(match: re.Match[str]) -> str:
    return match[0] if match[1] in SIZES else f"{{{match[0]}}}"


def default_formula(source: str) -> str:
    """Return the samples of a step: those of each rank, or one if no option states them."""
    return f"{{world_size}} * {PLACEHOLDER}" if source else "{world_size}"


def free_name(script: str, directory: Path) -> str:
    """Return a name for the suite of a script that no suite file of the directory has."""
    stem = script.rpartition("/")[2].removesuffix(".py").rpartition(".")[2]
    name = as_name(stem)
    taken = {path.stem for path in find_suites(directory)}
    return next(
        free
        for number in range(1, 2 + len(taken))
        if (free := name if number == 1 else f"{name}_{number}") not in taken
    )


def suite_of_script(script: str, directory: Path) -> Path | None:
    """Return the suite file of a directory that runs this script, or None if there is none."""
    for path in find_suites(directory):
        with contextlib.suppress(ConfigError):  # a broken file matters to those who measure it
            fields = read_yaml(path)
            known = fields.get("script") if isinstance(fields, dict) else None
            if isinstance(known, str) and Path(known) == Path(script):
                return path
    return None


def suite_text(suite: ScriptSuite) -> str:
    """Return the suite file, as YAML: what a reader checks, and what differs from a default."""
    fields: dict[str, Any] = msgspec.to_builtins(suite)
    plain = ScriptSuite(**{name: getattr(suite, name) for name in _ORDER})
    defaults = msgspec.to_builtins(plain)
    others = [name for name in fields if fields[name] != defaults[name]]
    return yaml_text({name: fields[name] for name in (*_ORDER, *others)})
