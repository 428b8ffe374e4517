"""Points, network, boundaries."""

from __future__ import annotations

import pytest
import torch

from iam_lab.toy.boundary import Grid, changed, moved, noise, one_step
from iam_lab.toy.boundary_figure import boundary_figure
from iam_lab.toy.mixture import Mixture
from iam_lab.toy.network import Training


def test_the_network_has_the_papers_number_of_weights() -> None:
    network = Training().network()
    assert sum(weight.numel() for weight in network.parameters()) == 5393
    assert next(network.parameters()).dtype == torch.float64


def test_the_points_are_three_gaussians_around_the_origin() -> None:
    points, labels = Mixture(count=3000, spread=0.5).draw()
    for label in range(3):
        mine = points[labels == label]
        assert mine.mean(0).norm() == pytest.approx(2.0, abs=0.05)
        assert mine.std(0).mean() == pytest.approx(0.5, abs=0.03)


def test_training_separates_them_and_repeats() -> None:
    points, labels = Mixture(count=90).draw()
    seen: list[int] = []
    first = Training(steps=40).run(points, labels, lambda step, _: seen.append(step))
    again = Training(steps=40).run(points, labels)
    assert seen == list(range(41))
    assert torch.equal(first(points), again(points))
    assert (first(points).argmax(1) == labels).double().mean() > 0.9


def test_one_step_moves_the_boundary_and_noise_does_not() -> None:
    points, labels = Mixture().draw()
    network = Training().run(points, labels)
    deltas = one_step(network, points, 0.5, seed=0), noise(network, 0.5, seed=0)
    for delta in deltas:
        norm = torch.stack([step.norm() for step in delta.values()]).norm()
        assert norm == pytest.approx(0.5, rel=1e-9)
    grid = Grid(side=41)
    here = grid.margins(network).argmax(-1)
    shares = [(grid.margins(network, delta).argmax(-1) != here).double().mean() for delta in deltas]
    assert shares[0] > 5 * shares[1]
    assert changed(network, points, deltas[0]) > changed(network, points, deltas[1])


def test_a_margin_is_positive_for_the_class_decided_for() -> None:
    points, labels = Mixture(count=30).draw()
    network, grid = Training(steps=20).run(points, labels), Grid(side=9)
    margins = grid.margins(network)
    y, x = torch.meshgrid(grid.axis(), grid.axis(), indexing="ij")
    decided = moved(network, torch.stack([x, y], -1).reshape(-1, 2)).argmax(1)
    assert torch.equal(margins.argmax(-1).flatten(), decided)
    assert ((margins > 0).sum(-1) == 1).all()


def test_the_picture_is_an_svg_with_a_name_for_readers() -> None:
    points, labels = Mixture(count=30).draw()
    network = Training(steps=20).run(points, labels)
    svg = boundary_figure("plane", network, points, labels, noise(network, 0.5, 0), "Noise", "ε")
    assert svg.startswith("<svg")
    assert 'aria-label="Noise: points of three classes' in svg
