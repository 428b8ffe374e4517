"""Two ranks over gloo: one gradient, a delta each, or one delta of all."""

from __future__ import annotations

import copy
import datetime
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from tests.cases import gradient, relative
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import torch_iam as iam

X = torch.randn(8, 1, 6, 6, generator=torch.Generator().manual_seed(0)).double()
Y = torch.randint(0, 3, (8,), generator=torch.Generator().manual_seed(1))
KINDS: dict[str, Any] = {
    "plain": lambda m, **o: iam.Plain(m),
    "sam": lambda m, **o: iam.SAM(m, rho=0.05, **o),
    "iam-s": lambda m, **o: iam.IAMS(m, rho=0.1, seed=0, **o),
    "iam-d": lambda m, **o: iam.IAMD(m, rho=0.1, seed=0, **o),
    "iam-d-lean": lambda m, **o: iam.IAMD(m, rho=0.1, seed=0, lean=True, **o),
}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(64, 3)).double()


class WithSpare(nn.Module):
    """A weight that no rank uses, and one that the second rank does not."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.spare, self.sometimes = nn.Linear(36, 3), nn.Linear(2, 2), nn.Linear(36, 3)
        self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1)
        return self.body(x) + (self.sometimes(x) if dist.get_rank() == 0 else 0.0)


def _refusal(work: Callable[[], Any]) -> str:
    try:
        work()
    except ValueError as error:
        return str(error)
    return ""


SEARCHES: dict[str, dict[str, Any]] = {
    "one-pass": {"start": "carry"},
    "worst": {"sign": "worst", "rho": 2.0},
    "ascent": {"sign": "ascent", "rho": 0.5},
}


def _delta_of(objective: Any, part: slice) -> torch.Tensor:
    """The delta that the last of three steps went to, as one vector."""
    seen: list[torch.Tensor] = []
    original = objective.ball.moved

    def spy(delta: list[torch.Tensor], *, leaf: bool) -> dict[str, torch.Tensor]:
        seen.append(torch.cat([piece.flatten() for piece in delta]))
        return original(delta, leaf=leaf)

    objective.ball.moved = spy
    for _ in range(3):
        objective.backward(X[part], Y[part], F.cross_entropy)
    return seen[-1].detach().clone()


def _rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meet",
        rank=rank,
        world_size=2,
        timeout=datetime.timedelta(seconds=60),
    )
    found: dict[str, Any] = {}
    mine = slice(0, 4) if rank == 0 else slice(4, 8)
    for name, build in KINDS.items():
        model = DistributedDataParallel(network())
        objective = build(model)
        objective.backward(X[mine], Y[mine], F.cross_entropy)
        found[name] = gradient(model)
        if "iam" in name:
            found[name + " seed"] = objective.maximizer.generator.initial_seed()

    model = DistributedDataParallel(network())
    with model.no_sync():
        iam.Plain(model).backward(X[mine][:2], Y[mine][:2], F.cross_entropy, loss_scale=0.5)
        found["local"] = gradient(model)
    iam.Plain(model).backward(X[mine][2:], Y[mine][2:], F.cross_entropy, loss_scale=0.5)
    found["accumulated"] = gradient(model)

    model = DistributedDataParallel(network())
    iam.IAMD(model, rho=0.1, seed=0, sync="global").backward(X[mine], Y[mine], F.cross_entropy)
    found["global"] = gradient(model)
    for name, options in SEARCHES.items():
        model = DistributedDataParallel(network())
        found[f"delta {name}"] = _delta_of(iam.IAMD(model, seed=0, sync="global", **options), mine)
    found["delta sam"] = _delta_of(iam.SAM(DistributedDataParallel(network()), sync="global"), mine)

    model = DistributedDataParallel(WithSpare(), find_unused_parameters=True)
    iam.IAMD(model, rho=0.1).backward(X[mine], Y[mine], F.cross_entropy)
    found["none"] = [name for name, weight in model.module.named_parameters() if weight.grad is None]
    found["unused"] = gradient(model)

    normed = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 3)).double()
    for kind in (iam.Plain, iam.IAMD):
        model = DistributedDataParallel(copy.deepcopy(normed))
        for _ in range(2):
            kind(model).backward(X[mine], Y[mine], F.cross_entropy)
        found[f"buffers {kind.__name__}"] = model.module[1].running_mean.clone()
    model = DistributedDataParallel(copy.deepcopy(normed))
    for _ in range(2):
        F.cross_entropy(model(X[mine]), Y[mine]).backward()
    found["buffers expected"] = model.module[1].running_mean.clone()
    found["measured"] = iam.local_inconsistency(model, X, rho=0.1, restarts=1).value

    compiled = torch.compile(DistributedDataParallel(network()), backend="eager")
    found["refused compiled"] = _refusal(lambda: iam.IAMD(compiled))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what FSDP says of a CPU is not of interest
        sharded = FullyShardedDataParallel(network(), device_id=torch.device("cpu"))
    doors: dict[str, Callable[[], Any]] = {
        "objective": lambda: iam.IAMD(sharded),
        "penalty": lambda: iam.InconsistencyPenalty(sharded),
        "measure": lambda: iam.local_inconsistency(sharded, X, rho=0.1),
        "operator": lambda: iam.FisherOperator(sharded, X),
    }
    for name, door in doors.items():
        found[f"refused {name}"] = _refusal(door)
    torch.save(found, f"{folder}/rank{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("ranks")
    mp.spawn(_rank, args=(str(folder),), nprocs=2)
    return [torch.load(folder / f"rank{rank}.pt") for rank in (0, 1)]


@pytest.mark.parametrize("name", [*KINDS, "accumulated", "global"])
def test_ranks_hold_the_same_gradient(ranks: list[dict[str, Any]], name: str) -> None:
    assert torch.equal(ranks[0][name], ranks[1][name])


@pytest.mark.parametrize("name", ["plain", "sam"])
def test_a_rank_is_a_sub_batch(ranks: list[dict[str, Any]], name: str) -> None:
    """N8: two devices with four examples each are sub_batch=4 of eight on one device."""
    model = network()
    KINDS[name](model, **({} if name == "plain" else {"sub_batch": 4})).backward(X, Y, F.cross_entropy)
    assert relative(ranks[0][name], gradient(model)) < 1e-12


@pytest.mark.parametrize("name", ["iam-s", "iam-d", "iam-d-lean"])
def test_each_rank_climbs_for_itself(ranks: list[dict[str, Any]], name: str) -> None:
    """The mean of what each rank's seed finds on its own part of the batch."""
    parts = []
    for rank, mine in enumerate((slice(0, 4), slice(4, 8))):
        model = network()
        objective = KINDS[name](model)
        objective.maximizer.generator.manual_seed(rank)
        objective.backward(X[mine], Y[mine], F.cross_entropy)
        parts.append(gradient(model))
        assert ranks[rank][name + " seed"] == rank
    assert relative(ranks[0][name], torch.stack(parts).mean(0)) < 1e-10


def test_global_delta_is_that_of_the_whole_batch(ranks: list[dict[str, Any]]) -> None:
    model = network()
    iam.IAMD(model, rho=0.1, seed=0).backward(X, Y, F.cross_entropy)
    assert relative(ranks[0]["global"], gradient(model)) < 1e-8


def test_no_sync_accumulates_as_ddp_does(ranks: list[dict[str, Any]]) -> None:
    model = network()
    iam.Plain(model).backward(X, Y, F.cross_entropy)
    assert relative(ranks[0]["accumulated"], gradient(model)) < 1e-12
    assert not torch.equal(ranks[0]["local"], ranks[1]["local"])


@pytest.mark.parametrize("name", [*SEARCHES, "sam"])
def test_one_delta_of_all_ranks(ranks: list[dict[str, Any]], name: str) -> None:
    """sync="global", whatever decides about delta: what was carried, and on which side it is."""
    assert torch.equal(ranks[0][f"delta {name}"], ranks[1][f"delta {name}"])


def test_global_sam_is_that_of_the_whole_batch(ranks: list[dict[str, Any]]) -> None:
    found = _delta_of(iam.SAM(network()), slice(0, 8))
    assert relative(ranks[0]["delta sam"], found) < 1e-10


def test_weights_that_no_rank_uses_get_no_gradient(ranks: list[dict[str, Any]]) -> None:
    """An optimizer would let zeros decay."""
    for rank in ranks:
        assert rank["none"] == ["spare.weight", "spare.bias"]
    assert torch.equal(ranks[0]["unused"], ranks[1]["unused"])


def test_buffers_are_shared_as_ddp_does(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        for kind in ("Plain", "IAMD"):
            assert torch.equal(rank[f"buffers {kind}"], rank["buffers expected"])


def test_a_wrapper_is_taken_off_for_measuring(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["measured"] > 0


def test_wrappers_that_do_not_fit_are_refused(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert "write DistributedDataParallel(torch.compile(net))" in rank["refused compiled"]
        for door in ("objective", "penalty", "measure", "operator"):
            assert "sharded over devices (FSDP or tensor parallel)" in rank[f"refused {door}"], door
