"""The numbers of paper.csv against the LaTeX tables, typed here by hand."""

from __future__ import annotations

from collections import Counter

import pytest

from iam_lab.data.catalogue import CATALOGUE
from iam_lab.recipes.paper import PLACES, all_numbers, number, numbers

# tab:1 in full, as its LaTeX rows read.
TABLE_1 = {
    "cifar10": ("3.68 ± 0.04", "3.31 ± 0.01", "3.15 ± 0.02", "3.28 ± 0.06", "3.28 ± 0.03"),
    "cifar100": ("19.17 ± 0.19", "17.63 ± 0.12", "17.15 ± 0.11", "17.16 ± 0.03", "16.82 ± 0.01"),
    "fashion_mnist": ("4.45 ± 0.05", "4.13 ± 0.02", "4.11 ± <0.01", "4.13 ± 0.04", "4.10 ± 0.05"),
    "svhn": ("3.82 ± 0.06", "3.47 ± 0.09", "3.24 ± 0.04", "3.13 ± 0.06", "3.13 ± 0.01"),
}

# One or two cells of every other table, corners preferred.
SPOTS = [
    (("tab:imagnet", "imagenet", "sgd", "", "top5_error"), "6.51 ± 0.06"),
    (("tab:imagnet", "imagenet", "iam-d", "", "top1_error"), "21.36 ± 0.06"),
    (("tab:imagnet_full", "imagenet", "sgd", "epochs=100", "top1_error"), "23.27 ± 0.08"),
    (("tab:imagnet_full", "imagenet", "sgd", "epochs=200", "top5_error"), "6.51 ± 0.07"),
    (("tab:imagnet_full", "imagenet", "iam-s", "epochs=400", "top5_error"), "5.61"),
    (("fig:imagenet_efficiency", "imagenet", "sgd", "epochs=800", "top1_accuracy"), "76.88"),
    (("fig:imagenet_efficiency", "imagenet", "iam-d", "epochs=400", "top1_accuracy"), "79.27"),
    (("tab:vit_cifar10_iamd", "cifar10", "sgd", "", "error"), "1.86 ± 0.01"),
    (("tab:vit_cifar10_iamd", "cifar10", "iam-d", "", "error"), "1.52 ± 0.02"),
    (("tab:cifar_comparison", "cifar10", "adamw", "", "error"), "15.29 ± 0.50"),
    (("tab:cifar_comparison", "cifar100", "iam-s", "", "error"), "42.25 ± 0.42"),
    (("tab:cifar_comparison_mlpmixer", "cifar10", "asam", "", "error"), "16.01 ± 0.31"),
    (("tab:cifar_comparison_mlpmixer", "cifar100", "iam-s", "", "error"), "38.39 ± 0.31"),
    (("tab:imagnet_VitS", "imagenet", "iam-s", "", "top1_error"), "30.09 ± 0.30"),
    (("tab:iam_wrn28", "cifar10", "iam-d", "K=2 m=16", "error"), "2.80 ± 0.02"),
    (("tab:iam_wrn28", "cifar100", "iam-d", "K=5 m=32", "error"), "15.78 ± 0.18"),
    (("tab:iam_wrn28", "cifar", "iam-d", "K=5 m=128", "seconds_per_epoch"), "525"),
    (("tab:semi_cifar", "cifar10", "iam-d", "labels=4000", "error"), "15.07 ± 0.14"),
    (("tab:semi_cifar", "cifar100", "fixmatch-iam-d", "labels=10000", "error"), "21.99 ± 0.04"),
    (("tab:fix_match", "cifar10", "fixmatch-sam", "labels=250", "error"), "9.90 ± 0.74"),
]


@pytest.mark.parametrize("dataset", TABLE_1)
def test_table_1_reads_as_in_the_paper(dataset: str) -> None:
    methods = ("sgd", "sam", "asam", "iam-d", "iam-s")
    assert tuple(str(number("tab:1", dataset, method)) for method in methods) == TABLE_1[dataset]


@pytest.mark.parametrize(("key", "printed"), SPOTS, ids=lambda value: str(value))
def test_spot_values(key: tuple[str, str, str, str, str], printed: str) -> None:
    assert str(number(*key)) == printed


def test_kendall_taus_of_both_networks() -> None:
    taus = {(found.model, found.cell): found.mean for found in numbers("fig:measure_comparison")}
    assert taus == {
        ("6cnn", "measure=S_rho"): 0.5141,
        ("6cnn", "measure=trace_H"): 0.5444,
        ("6cnn", "measure=lambda_max_H"): 0.5175,
        ("wrn-28-2", "measure=S_rho"): 0.3658,
        ("wrn-28-2", "measure=trace_H"): -0.0439,
        ("wrn-28-2", "measure=lambda_max_H"): -0.12,
    }


def test_every_table_has_all_its_cells() -> None:
    assert Counter(found.label for found in all_numbers()) == {
        "tab:1": 20,
        "tab:imagnet": 8,
        "tab:imagnet_full": 24,
        "fig:imagenet_efficiency": 13,
        "tab:vit_cifar10_iamd": 3,
        "tab:cifar_comparison": 10,
        "tab:cifar_comparison_mlpmixer": 10,
        "tab:imagnet_VitS": 8,
        "tab:iam_wrn28": 24 + 8,
        "fig:measure_comparison": 6,
        "tab:semi_cifar": 20,
        "tab:fix_match": 3,
    }


def test_efficiency_figure_is_the_full_imagenet_table_seen_from_above() -> None:
    for point in numbers("fig:imagenet_efficiency"):
        if point.cell != "epochs=800":
            error = number("tab:imagnet_full", "imagenet", point.method, point.cell, "top1_error")
            assert point.mean == pytest.approx(100 - error.mean)


def test_keys_are_unique_and_known() -> None:
    keys = Counter(
        (found.label, found.dataset, found.model, found.method, found.cell, found.metric)
        for found in all_numbers()
    )
    assert max(keys.values()) == 1
    assert {found.label for found in all_numbers()} == {
        label for label, place in PLACES.items() if not place.plotted
    }
    assert {found.dataset for found in all_numbers()} <= {*CATALOGUE, "cifar"}


def test_a_bound_on_the_standard_error_stays_a_bound() -> None:
    found = number("tab:1", "fashion_mnist", "asam")
    assert (found.stderr, found.printed_stderr) == (0.01, "<0.01")


def test_unknown_labels_are_named() -> None:
    with pytest.raises(ValueError, match="has no 'tab:2'"):
        numbers("tab:2")
