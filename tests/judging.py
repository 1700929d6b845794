"""The judge with its options by name, as tests vary them."""

from ddp_perf.stats.rule.comparison import JudgeOptions
from ddp_perf.stats.rule.judge import judge_figures, judge_launches


def judge(current, baseline, *, control=None, baseline_control=None, **options):
    """Judge by the values of every launch."""
    return judge_launches(
        current,
        baseline,
        JudgeOptions(**options),
        control=control,
        baseline_control=baseline_control,
    )


def judge_by_figures(current, baseline, *, control=None, baseline_control=None, **options):
    """Judge by one figure for each launch."""
    return judge_figures(
        current,
        baseline,
        JudgeOptions(**options),
        control=control,
        baseline_control=baseline_control,
    )
