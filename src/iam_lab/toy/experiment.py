"""All the toy's experiments as jobs, and what they found."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

from torch import Tensor

from iam_lab.models.mlp import MLP, Activation
from iam_lab.toy.accuracy import Accuracy, Climbs, accuracy, climbs
from iam_lab.toy.alignment import Alignment, alignment
from iam_lab.toy.boundary import Delta, changed, noise, one_step
from iam_lab.toy.dense import DenseCheck, dense_check
from iam_lab.toy.mixture import Mixture
from iam_lab.toy.network import Training
from iam_lab.workers import completed

SMALL, LARGE = 1e-3, 0.5
"""A radius where the quadratic theory holds, and the paper's radius for decision boundaries."""


@dataclass(frozen=True)
class Effort:
    """How much is computed.

    Attributes:
        mixture: the points.
        training: the network.
        every: steps of training between two measurements.
        radii: at which the trained network is measured.
        counts: values of K for the trained network at the small radius.
        activations: of the other networks.
        spreads: of the other mixtures.
        seeds: of each, for points and weights.
        ascent_starts: of the projected ascent.
        ascent_steps: likewise.
        align_starts: for the histograms.
        dense: whether to check the spectrum against the whole matrix.
    """

    mixture: Mixture = field(default_factory=Mixture)
    training: Training = field(default_factory=Training)
    every: int = 10
    radii: tuple[float, ...] = (1e-3, 1e-2, 3e-2, 0.1, 0.2, 0.5, 1.0)
    counts: tuple[int, ...] = (1, 2, 3, 5, 10, 20, 30)
    activations: tuple[Activation, ...] = ("tanh", "relu")
    spreads: tuple[float, ...] = (0.6, 0.8, 1.0, 1.2)
    seeds: int = 3
    ascent_starts: int = 20
    ascent_steps: int = 200
    align_starts: int = 10_000
    dense: bool = False

    @classmethod
    def quick(cls) -> Effort:
        """Enough to see that everything works."""
        return cls(
            mixture=Mixture(count=30),
            training=Training(steps=20, sizes=(2, 8, 8, 3)),
            radii=(SMALL, LARGE),
            counts=(1, 10),
            activations=("tanh",),
            spreads=(1.0,),
            seeds=2,
            ascent_starts=2,
            ascent_steps=10,
            align_starts=200,
            dense=True,
        )


@dataclass(frozen=True)
class Spread:
    """Algorithm 1 with K = 10 on another network and other points."""

    activation: Activation
    spread: float
    seed: int
    accuracy: Accuracy


@dataclass(frozen=True)
class Boundaries:
    """Perturbations of the trained network of one norm, and the share of points whose class they change."""

    rho: float
    deltas: list[Delta] = field(repr=False)
    noise: Delta = field(repr=False)
    changed_by_delta: list[float]
    changed_by_noise: float


@dataclass(frozen=True)
class Findings:
    """Everything measured."""

    effort: Effort
    network: MLP = field(repr=False)
    points: Tensor = field(repr=False)
    labels: Tensor = field(repr=False)
    training: dict[float, list[Accuracy]]
    radii: list[Accuracy]
    counts: dict[int, Accuracy]
    spreads: list[Spread]
    climbs: dict[float, Climbs]
    alignment: Alignment
    boundaries: Boundaries
    dense: DenseCheck | None


Job = Callable[[], Any]


def experiment(effort: Effort, workers: int, progress: Callable[[int, int], None]) -> Findings:
    """Train, then measure; ``progress`` is told how many jobs are done, and of how many."""
    points, labels = effort.mixture.draw()
    kept: dict[int, MLP] = {}

    def keep(step: int, network: MLP) -> None:
        if step % effort.every == 0:
            kept[step] = copy.deepcopy(network).requires_grad_()

    network = effort.training.run(points, labels, keep)
    jobs = _jobs(effort, network, kept, points, labels)
    names, found = list(jobs), dict[tuple[Any, ...], Any]()
    progress(0, len(jobs))
    for done, (position, result) in enumerate(completed(_call, list(jobs.values()), workers), start=1):
        found[names[position]] = result
        progress(done, len(jobs))
    return Findings(
        effort,
        network,
        points,
        labels,
        training={rho: [found["training", rho, step] for step in kept] for rho in (SMALL, LARGE)},
        radii=[found.get(("radius", rho)) or found["training", rho, max(kept)] for rho in effort.radii],
        counts={count: found["count", count] for count in effort.counts},
        spreads=[found[key] for key in names if key[0] == "spread"],
        climbs={rho: found["climbs", rho] for rho in (SMALL, LARGE)},
        alignment=found["alignment",],
        boundaries=_boundaries(network, points),
        dense=found.get(("dense",)),
    )


def _jobs(
    effort: Effort, network: MLP, kept: Mapping[int, MLP], points: Tensor, labels: Tensor
) -> dict[tuple[Any, ...], Job]:
    """Every job by its name, the longest first."""
    ascent = {"ascent_starts": effort.ascent_starts, "ascent_steps": effort.ascent_steps}
    measure = partial(accuracy, points=points, labels=labels)
    jobs: dict[tuple[Any, ...], Job] = {}
    if effort.dense:
        jobs["dense",] = partial(dense_check, network, points)
    for rho in (SMALL, LARGE):
        jobs["climbs", rho] = partial(
            climbs, network, points, rho, starts=effort.ascent_starts, steps=effort.ascent_steps
        )
    for rho, (step, then) in product((SMALL, LARGE), kept.items()):
        jobs["training", rho, step] = partial(measure, then, rho=rho, step=step, **ascent)
    for rho in set(effort.radii) - {SMALL, LARGE}:
        jobs["radius", rho] = partial(measure, network, rho=rho, step=effort.training.steps, **ascent)
    jobs["alignment",] = partial(alignment, network, points, LARGE, effort.align_starts)
    for count in effort.counts:
        jobs["count", count] = partial(measure, network, rho=SMALL, steps=count, ascent_starts=0)
    for activation, spread, seed in product(effort.activations, effort.spreads, range(effort.seeds)):
        jobs["spread", activation, spread, seed] = partial(_spread, effort, activation, spread, seed)
    return jobs


def _call(job: Job) -> Any:
    return job()


def _spread(effort: Effort, activation: Activation, spread: float, seed: int) -> Spread:
    points, labels = Mixture(effort.mixture.count, spread, seed).draw()
    how = effort.training
    training = Training(how.steps, how.learning_rate, how.momentum, activation, how.sizes, seed)
    network = training.run(points, labels)
    found = accuracy(network, points, labels, SMALL, step=how.steps, ascent_starts=0)
    return Spread(activation, spread, seed, found)


def _boundaries(network: MLP, points: Tensor) -> Boundaries:
    deltas = [one_step(network, points, LARGE, seed) for seed in range(3)]
    random = noise(network, LARGE, seed=0)
    return Boundaries(
        LARGE,
        deltas,
        random,
        [changed(network, points, delta) for delta in deltas],
        changed(network, points, random),
    )
