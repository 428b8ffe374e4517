"""``iam bench``: rows, what they cost in passes, and the peers that they stand beside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cases import relative
from torch import Tensor, nn
from torch.nn import functional as F

import torch_iam as iam
from iam_lab.bench.peers import RHO, sam_by_hand, sam_of_pytorch_optimizer
from iam_lab.bench.step_cost import MODES, PEERS, ROWS, Bench, names
from iam_lab.cli import main

LR = 0.1


def test_the_numbers_are_written_with_their_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = [
        "bench",
        "--model",
        "wrn-10-1",
        "--batch",
        "8",
        "--rounds",
        "2",
        "--calls",
        "1",
        "--device",
        "cpu",
    ]
    assert main([*call, "--only", "SAM", "IAM-D lean", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "step_cost-wrn-10-1-cpu.json").read_text())
    rows: dict[str, Any] = {row["name"]: row for row in found["rows"]}
    assert list(rows) == ["Plain", "SAM", "IAM-D lean"]
    assert rows["Plain"]["ratio"] == rows["Plain"]["peak_ratio"] == 1
    assert [row["passes"] for row in rows.values()] == pytest.approx([1, 2, 10 / 3])
    assert rows["IAM-D lean"]["ratio"] > 1.5  # it makes more than three times the passes
    assert found["environment"]["machine"]["cpus"] >= 1
    assert found["settings"]["batch"] == 8
    printed = capsys.readouterr().out
    assert all(name in printed for name in rows)


def test_a_row_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--only", "SOM"]) == 1
    assert "there is no row 'SOM'; there are Plain, SAM" in capsys.readouterr().err


def test_every_row_and_peer_makes_a_step() -> None:
    bench = Bench("wrn-10-1", "cpu", batch=4)
    for name in (*ROWS, *PEERS):
        torch.manual_seed(0)
        bench.work(name, "eager")()


def test_graphs_have_no_peers() -> None:
    assert set(names("graph")) == set(names("overlap")) == set(ROWS)
    assert set(names("eager")) == {*ROWS, *PEERS}
    assert MODES == ("eager", "compiled", "graph", "overlap")


def weights(model: nn.Module) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


@pytest.mark.parametrize("peer", ["by hand", "pytorch_optimizer"])
def test_peers_make_the_step_that_sam_makes(peer: str) -> None:
    """What is compared does the same work: without BatchNorm, whose statistics they update twice."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 5, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (8,), generator=generator)

    def network() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()

    def sgd(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9, weight_decay=5e-4)

    theirs, ours = network(), network()
    optimizer, objective = sgd(ours), iam.SAM(ours, rho=RHO)

    def loss(model: nn.Module) -> Tensor:
        return F.cross_entropy(model(x), y)

    step = sam_by_hand(theirs, sgd(theirs), loss) if peer == "by hand" else None
    step = step or sam_of_pytorch_optimizer(theirs, loss, LR)
    for _ in range(3):
        step()
        optimizer.zero_grad()
        objective.backward(x, y, F.cross_entropy)
        optimizer.step()
    assert relative(weights(theirs), weights(ours)) < 1e-9
