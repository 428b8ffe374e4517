"""Learning with few labels or none on scikit-learn's digits, in seconds on a CPU; nothing of the paper.

``digits-...`` are for trying the trainer. ``few-labels-...`` are an experiment: what SAM and IAM-D change, with
40 labels or none, everything else being equal; ``docs/results.md`` has its results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from iam_lab.recipes.family import Family, objective
from iam_lab.recipes.few_labels import FixMatch, Probe, SemiSupervised, SimCLR, TaskName
from iam_lab.recipes.schema import Config, Data, Evaluation, Model, Optimizer, Recipe, Schedule, Training

NETWORK = Model("wrn-10-1")


def semi(method: str) -> Recipe:
    """100 labels: ten of each digit."""
    return Recipe(
        name=f"digits-semi-{method}",
        config=Config(
            model=NETWORK,
            data=Data("digits", augment="none", validation=0.1),
            objective=objective(method, rho=0.1, beta=1.0),
            optimizer=Optimizer(lr=0.05),
            schedule=Schedule("cosine"),
            training=Training(epochs=40, batch_size=50, label_smoothing=0.0),
            semi=SemiSupervised(labels=100, batch_size=150),
            task="semi-supervised",
        ),
        note="For trying the trainer: seconds on a CPU.",
    )


def semi_recipes() -> Iterator[Recipe]:
    """Every method of the block of the paper's table."""
    yield from (semi(method) for method in ("sgd", "sam", "iam-d"))


def fixmatch(method: str) -> Recipe:
    """30 labels: three of each digit; digits are not flipped, and lose few of their 64 pixels."""
    return Recipe(
        name=f"digits-fixmatch-{method}",
        config=Config(
            model=NETWORK,
            data=Data("digits", augment="none", validation=0.1),
            objective=objective(method, rho={"sam": 0.05, "iam-d": 0.05}.get(method), beta=1.0),
            optimizer=Optimizer(
                lr=0.1, decay_norms_and_biases=False, options={"momentum": 0.9, "nesterov": True}
            ),
            schedule=Schedule("cosine-7-16"),
            training=Training(epochs=40, batch_size=30, label_smoothing=0.0, ema=0.99),
            semi=SemiSupervised(labels=30, batch_size=210, include_labelled=True),
            fixmatch=FixMatch(strong="crop-strong"),
            task="fixmatch",
        ),
        note="For trying the trainer: less than a minute on a CPU.",
    )


def fixmatch_recipes() -> Iterator[Recipe]:
    """Every method of the paper's table."""
    yield from (fixmatch(method) for method in ("sgd", "sam", "iam-d"))


def simclr(method: str) -> Recipe:
    """No labels but for the probe; views are crops, distorted, painted over: digits are not flipped."""
    return Recipe(
        name=f"digits-simclr-{method}",
        config=Config(
            model=NETWORK,
            data=Data("digits", augment="crop-strong", validation=0.1),
            objective=objective(method, rho=0.1, beta=1.0, options={"start_norm": 3.0}),
            optimizer=Optimizer(lr=0.3, weight_decay=1e-4),
            schedule=Schedule("cosine", warmup_steps=10),
            training=Training(epochs=30, batch_size=128, label_smoothing=0.0),
            evaluation=Evaluation(every=5),
            simclr=SimCLR(projector=(64, 32)),
            probe=Probe(batch_size=128, lr=0.01),
            task="simclr",
        ),
        note="For trying the trainer: seconds on a CPU.",
    )


def simclr_recipes() -> Iterator[Recipe]:
    """Both curves of the paper's figure."""
    yield from (simclr(method) for method in ("sgd", "iam-d"))


LABELS, LABELLED_BATCH, UNLABELLED_BATCH, STEPS, STEPS_PER_EPOCH = 40, 40, 160, 480, 60
RHO = {
    ("semi", "sam"): 0.1,
    ("semi", "iam-d"): 0.1,
    ("fixmatch", "sam"): 0.1,
    ("fixmatch", "iam-d"): 0.1,
    ("simclr", "iam-d"): 0.1,
}
SHORT_NAMES: dict[TaskName, str] = {"semi-supervised": "semi", "fixmatch": "fixmatch"}
BETA = {"semi": 1.0, "fixmatch": 1.0, "simclr": 1.0}
UNTUNED = {
    "sgd": "",
    "sam": "rho is that of the upper block of the paper's tab:semi_cifar; it was not tuned.",
    "iam-d": "rho and beta are those of the upper block of the paper's tab:semi_cifar; they were not tuned.",
}


def compared(task: TaskName, method: str) -> Recipe:
    """40 labels, four of each digit; tasks and methods differ in their loss and in nothing else."""
    short = SHORT_NAMES[task]
    return Recipe(
        name=f"few-labels-{short}-{method}",
        config=Config(
            model=NETWORK,
            data=Data("digits", augment="crop", validation=0.2),
            objective=objective(method, rho=RHO.get((short, method)), beta=BETA[short]),
            optimizer=Optimizer(
                lr=0.1, decay_norms_and_biases=False, options={"momentum": 0.9, "nesterov": True}
            ),
            schedule=Schedule("cosine-7-16"),
            training=Training(
                steps=STEPS,
                steps_per_epoch=STEPS_PER_EPOCH,
                batch_size=LABELLED_BATCH,
                label_smoothing=0.0,
                ema=0.99,
            ),
            semi=SemiSupervised(labels=LABELS, batch_size=UNLABELLED_BATCH, include_labelled=True),
            fixmatch=FixMatch(strong="crop-strong"),
            task=task,
        ),
        seeds=5,
        note=UNTUNED[method],
    )


def compared_simclr(method: str) -> Recipe:
    """No labels but for the probe, which has those of all training images."""
    base = simclr(method).config
    return Recipe(
        name=f"few-labels-simclr-{method}",
        config=replace(
            base,
            data=replace(base.data, validation=0.2),
            objective=objective(
                method, rho=RHO.get(("simclr", method)), beta=BETA["simclr"], options={"start_norm": 3.0}
            ),
            evaluation=Evaluation(every=10),
        ),
        seeds=5,
        note="" if method == "sgd" else "rho and beta are those of the paper's SimCLR; they were not tuned.",
    )


def compared_recipes() -> Iterator[Recipe]:
    """Every method with few labels, with FixMatch, and without labels."""
    for task in SHORT_NAMES:
        yield from (compared(task, method) for method in ("sgd", "sam", "iam-d"))
    yield from (compared_simclr(method) for method in ("sgd", "iam-d"))


COMPARED = Family(
    "few-labels",
    "what SAM and IAM-D change with 40 labels of digits, or none: minutes on a CPU",
    compared_recipes,
)
SEMI = Family("digits-semi", "scikit-learn's digits with 100 labels, for trying the trainer", semi_recipes)
FIXMATCH = Family(
    "digits-fixmatch", "scikit-learn's digits with 30 labels and FixMatch, for trying it", fixmatch_recipes
)
SIMCLR = Family(
    "digits-simclr", "scikit-learn's digits without labels: SimCLR, for trying it", simclr_recipes
)
