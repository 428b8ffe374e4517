"""What must not change on the way."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torch_iam.guards import Holdings, MeanBuffers, Moment, RandomStream, mode, uncached_autocast


def test_a_moment_is_relived_and_left_again() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5)).train()
    x = torch.randn(6, 4)
    moment = Moment(model)
    first = model(x)
    stream = torch.get_rng_state()
    running = model[0].running_mean.clone()
    for _ in range(2):
        with moment.again() as buffers:
            again = torch.func.functional_call(model, buffers, (x,))
            assert torch.equal(first, again)
    assert torch.equal(torch.get_rng_state(), stream)
    assert torch.equal(model[0].running_mean, running)


def test_the_stream_goes_on_after_an_exception() -> None:
    moment = Moment(nn.Linear(2, 2))
    torch.rand(3)
    stream = torch.get_rng_state()
    with pytest.raises(KeyboardInterrupt), moment.again():
        torch.rand(5)
        raise KeyboardInterrupt
    assert torch.equal(torch.get_rng_state(), stream)


def test_random_stream_restores() -> None:
    stream = RandomStream([torch.device("cpu")])
    first = torch.rand(3)
    stream.restore()
    assert torch.equal(first, torch.rand(3))


def test_holdings_put_back_what_was_swapped_deleted_and_added() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    before = {name: id(tensor) for name, tensor in model.state_dict(keep_vars=True).items()}
    holdings = Holdings(model)
    del model[0].weight
    model[0]._parameters["stranger"] = nn.Parameter(torch.zeros(1))
    model[1]._buffers["running_mean"] = torch.ones(2)
    for _ in range(2):
        holdings.restore()
        assert {name: id(tensor) for name, tensor in model.state_dict(keep_vars=True).items()} == before
    assert list(model[0]._parameters) == ["weight", "bias"]


def test_mean_buffers() -> None:
    model = nn.BatchNorm1d(2, momentum=0.5)
    buffers = MeanBuffers(model)
    for part in (torch.zeros(3, 2), torch.full((3, 2), 4.0)):
        with buffers.part():
            model(part)
    buffers.finish()
    assert model.running_mean.tolist() == [1.0, 1.0]
    assert int(model.num_batches_tracked) == 1


def test_every_module_gets_its_own_mode_back() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.BatchNorm1d(2))
    model[1].eval()
    with pytest.raises(ZeroDivisionError), mode(model, training=False):
        assert not any(module.training for module in model.modules())
        _ = 1 / 0
    assert [module.training for module in model.modules()] == [True, True, False, True]


def test_uncached_autocast_follows_the_callers() -> None:
    device = torch.device("cpu")
    with uncached_autocast(device):
        assert not torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu", dtype=torch.bfloat16), uncached_autocast(device):
        assert torch.is_autocast_enabled("cpu")
        assert not torch.is_autocast_cache_enabled()


class Interrupted(nn.Linear):
    def train(self, training: bool = True) -> nn.Linear:
        super().train(training)
        if not training:
            raise KeyboardInterrupt
        return self


def test_an_interrupt_on_the_way_into_a_mode_leaves_none() -> None:
    model = nn.Sequential(nn.Linear(2, 2), Interrupted(2, 2))
    with pytest.raises(KeyboardInterrupt), mode(model, training=False):
        pass
    assert all(module.training for module in model.modules())


class Merging(nn.Linear):
    """Answers to its mode, as LoRA layers do that merge in evaluation."""

    merged = False

    def train(self, training: bool = True) -> nn.Linear:
        super().train(training)
        if self.merged == training:
            with torch.no_grad():
                self.weight.add_(-1.0 if training else 1.0)
            self.merged = not training
        return self


def test_a_module_that_answers_to_its_mode_is_called_on_the_way_back_too() -> None:
    model = nn.Sequential(Merging(2, 2), nn.Linear(2, 2)).double()
    before = model[0].weight.detach().clone()
    with mode(model, training=False):
        assert model[0].merged
    assert not model[0].merged
    assert torch.allclose(model[0].weight, before)
