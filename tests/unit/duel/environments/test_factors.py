"""The changes that can be made one by one, and those that must be made together."""

from __future__ import annotations

from ddp_perf.duel.environments.factors import (
    changed_distributions,
    package_factors,
    taken_along,
    variable_factors,
)
from tests.unit.duel.environments.environments import make_distribution, make_inventory


def factors_of(before, after):
    changes = changed_distributions(make_inventory(*before), make_inventory(*after))
    return package_factors(changes, "3.11.2")


def named(factors):
    return {factor.name: factor for factor in factors}


def test_independent_packages_are_factors_of_their_own_with_links_to_b():
    before = [make_distribution("numpy", "1.0"), make_distribution("rich", "1.0")]
    after = [
        make_distribution("numpy", "2.0", site="/b"),
        make_distribution("rich", "2.0", site="/b"),
    ]

    factors, fixed = factors_of(before, after)

    assert [(one.name, one.label) for one in factors] == [
        ("numpy", "numpy 1.0 → 2.0"),
        ("rich", "rich 1.0 → 2.0"),
    ]
    assert factors[0].links == (
        ("numpy", "/b/numpy"),
        ("numpy-2.0.dist-info", "/b/numpy-2.0.dist-info"),
    )
    assert fixed == []


def test_packages_that_pin_each_other_are_one_factor():
    before = [
        make_distribution("torch", "2.11", requires=["triton==3.2"]),
        make_distribution("triton", "3.2"),
    ]
    after = [
        make_distribution("torch", "2.13", site="/b", requires=["triton==3.5"]),
        make_distribution("triton", "3.5", site="/b"),
    ]

    (factor,), _ = factors_of(before, after)

    assert factor.label == "torch 2.11 → 2.13, triton 3.2 → 3.5"
    assert {name for name, _ in factor.links} >= {"torch", "triton"}


def test_packages_that_share_a_directory_are_one_factor():
    def parts(site, version):
        return [
            make_distribution(f"nvidia-{part}", version, site=site, files=[f"nvidia/{part}/a.so"])
            for part in ("cublas", "nccl")
        ]

    (factor,), _ = factors_of(parts("/a", "1"), parts("/b", "2"))

    assert factor.label == "nvidia-cublas 1 → 2, nvidia-nccl 1 → 2"
    assert ("nvidia", "/b/nvidia") in factor.links


def test_a_package_takes_along_what_it_requires_and_not_the_reverse():
    before = [make_distribution("base", "1"), make_distribution("user", "1")]
    after = [
        make_distribution("base", "2", site="/b"),
        make_distribution("user", "2", site="/b", requires=["base>=2", "absent; extra == 'x'"]),
    ]

    factors, _ = factors_of(before, after)

    assert named(factors)["user"].takes == ("base",)
    assert named(factors)["base"].takes == ()
    assert taken_along([named(factors)["user"]], factors) == tuple(factors)
    assert taken_along([named(factors)["base"]], factors) == (named(factors)["base"],)


def test_a_requirement_of_another_python_does_not_apply():
    before = [make_distribution("base", "1"), make_distribution("user", "1")]
    marked = "base>=2; python_version < '3.9'"
    after = [
        make_distribution("base", "2", site="/b"),
        make_distribution("user", "2", site="/b", requires=[marked]),
    ]

    assert not any(factor.takes for factor in factors_of(before, after)[0])


def test_a_package_that_only_a_has_or_that_has_no_files_cannot_be_moved():
    before = [make_distribution("gone", "1"), make_distribution("linked", "1", files=())]
    after = [make_distribution("linked", "2", site="/b", files=("__editable__.linked.pth",))]

    factors, fixed = factors_of(before, after)

    assert factors == []
    assert fixed == [
        "gone 1 → absent: it cannot be hidden from Python",
        "linked 1 → 2: it has no files to import (an editable install?)",
    ]


def test_variables_that_differ_are_factors():
    found = variable_factors({"SAME": "1", "OLD": "a", "X": "1"}, {"SAME": "1", "X": "2"})

    assert [(one.label, one.value) for one in found] == [
        ("OLD: a → unset", None),
        ("X: 1 → 2", "2"),
    ]
