"""The settings of a sweep: every combination of the knobs' values, as a case of its own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ddp_perf.config.cases import Variant, cases_of, hook_name
from ddp_perf.config.loading import check_environment, check_options
from ddp_perf.config.suite import AnySuite, Suite
from ddp_perf.config.techniques import with_technique
from ddp_perf.core.case import Case, Scalar
from ddp_perf.duel.sweep.knobs import Knob, value_text
from ddp_perf.errors import ConfigError

_MOST = 512  # combinations: each is launched at least once
_NAME = "setting"  # of the technique that a setting is made with; no id has it


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One value of each knob."""

    name: str  # "bucket_cap_mb=5 NCCL_ALGO=Ring"
    changes: dict[str, Any]  # of the suite, by field
    case: Case


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A combination that is not measured."""

    name: str
    reason: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The suite's own setting, and those that are compared with it."""

    base: Case
    tried: tuple[Setting, ...]
    left_out: tuple[LeftOut, ...] = ()


def plan_settings(
    suite: AnySuite, base: Case, knobs: Sequence[Knob], obstacle: Callable[[Case], str | None]
) -> Settings:
    """Return the settings of a case of a suite.

    A combination that the suite refuses, that cannot run here (``obstacle`` returns why), or that
    does the same work as an earlier one, is left out. Raises ConfigError for a value that is none,
    and if nothing is left.
    """
    used = [knob for knob in knobs if _unused(knob, base) is None]
    left_out = [
        LeftOut(name=knob.name, reason=why)
        for knob in knobs
        if (why := _unused(knob, base)) is not None
    ]
    count = math.prod(len(knob.values) for knob in used)
    if count > _MOST:
        raise ConfigError(
            f"{count} combinations are more than {_MOST}; give fewer values, or sweep some knobs"
            " first"
        )
    own = _narrowed(suite, base)
    for knob in used:
        for value in knob.values:
            _check_value(own, knob, value)
    tried: list[Setting] = []
    first = {_work(base): "the suite's own setting"}
    for values in itertools.product(*(knob.values for knob in used)) if used else ():
        setting = _setting(own, base, used, values)
        reason = setting.reason if isinstance(setting, LeftOut) else obstacle(setting.case)
        if isinstance(setting, Setting) and reason is None:
            same = first.setdefault(_work(setting.case), setting.name)
            reason = None if same == setting.name else f"it does the same work as {same}"
        if isinstance(setting, Setting) and reason is None:
            tried.append(setting)
        else:
            left_out.append(LeftOut(name=setting.name, reason=reason or ""))
    if not tried:
        raise ConfigError(f"no setting is left: {left_out[0].name}: {left_out[0].reason}")
    return Settings(base=base, tried=tuple(tried), left_out=tuple(left_out))


def _unused(knob: Knob, base: Case) -> str | None:
    if base.tier == "cpu" and knob.path[0] == "env" and knob.path[1].startswith("NCCL_"):
        return "ranks of tier cpu communicate by gloo, not by NCCL"
    return None


def _narrowed(suite: AnySuite, base: Case) -> AnySuite:
    """Return the suite whose own setting is that of the case: with its technique, or its hook."""
    if not isinstance(suite, Suite):
        return suite
    plain = msgspec.structs.replace(suite, techniques={})
    if base.technique in suite.techniques:
        return with_technique(suite, base.technique, suite.techniques[base.technique])
    hooks = [hook for hook in suite.comm_hooks if hook_name(hook) == base.technique]
    return msgspec.structs.replace(plain, comm_hooks=tuple(hooks or suite.comm_hooks[:1]))


def _changed(own: AnySuite, changes: dict[str, Any]) -> AnySuite:
    """Return the suite with the changes, whose types are checked. Raises ConfigError."""
    if not isinstance(own, Suite):
        return msgspec.structs.replace(own, env={**own.env, **changes["env"]})
    try:
        return with_technique(own, _NAME, changes)
    except ConfigError as error:
        raise ConfigError(str(error).removeprefix(f"techniques.{_NAME}.")) from None


def _check_value(own: AnySuite, knob: Knob, value: Any) -> None:
    """Raise ConfigError for a value that the option cannot have, whatever the others are."""
    try:
        changed = _changed(own, knob.changes(value))
    except ConfigError as error:
        raise ConfigError(f"{knob.name}={value_text(value)}: {error}") from None
    check_environment(changed.env)


def _setting(
    own: AnySuite, base: Case, knobs: Sequence[Knob], values: Sequence[Any]
) -> Setting | LeftOut:
    """Return the combination as a case, or why the suite refuses it."""
    pairs = list(zip(knobs, values, strict=True))
    name = " ".join(f"{knob.name}={value_text(value)}" for knob, value in pairs)
    changes: dict[str, Any] = {}
    for knob, value in pairs:
        for field, change in knob.changes(value).items():
            is_table = len(knob.path) > 1
            changes[field] = {**changes.get(field, {}), **change} if is_table else change
    try:
        changed = _changed(own, changes)
        check_options(changed)
    except ConfigError as error:
        return LeftOut(name=name, reason=str(error))
    place = [_work(case) for case in cases_of(Variant(suite=own))].index(_work(base))
    case = cases_of(Variant(suite=changed))[place]
    case = msgspec.structs.replace(case, id=f"{base.id}-{name.replace(' ', '-')}")
    return Setting(name=name, changes=changes, case=case)


def _work(case: Case) -> tuple[tuple[str, Scalar], ...]:
    return tuple(sorted(case.work().items()))
