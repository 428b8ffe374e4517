"""Same seed, same bits; a run that is asked to stop continues with the step it would have made."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.iam_lab.train.configs import tiny, tiny_fixmatch, tiny_semi, tiny_simclr
from tests.iam_lab.train.test_killed import comparable, left_behind

from iam_lab.data import spec_of
from iam_lab.errors import Interrupted, RecipeError, RunError
from iam_lab.recipes.schema import Config, Objective, Optimizer, Schedule
from iam_lab.recipes.typed import updated
from iam_lab.runs.checkpoint import load_weights, save_weights
from iam_lab.runs.folder import RunFolder
from iam_lab.train import supervised
from iam_lab.train.evaluate import errors
from iam_lab.train.network import network_to_train
from iam_lab.train.run import train
from iam_lab.train.supervised import Supervised
from iam_lab.train.trainer import Trainer

SHORT = tiny(training__epochs=2, measurement__every=0)

KINDS = {
    "plain": SHORT,
    "sam": replace(SHORT, objective=Objective("sam", rho=0.05)),
    "asam-sub-batches": replace(SHORT, objective=Objective("asam", rho=0.5, eta=0.01, sub_batch=12)),
    "iam-s": replace(SHORT, objective=Objective("iam-s", rho=0.1, steps=2)),
    "iam-d-adamw": replace(
        SHORT,
        objective=Objective("iam-d", rho=0.1, beta=1.0, norms_and_biases=False),
        optimizer=Optimizer("AdamW", lr=0.003, decay_norms_and_biases=False, options={}),
    ),
    "torch-schedule": replace(
        SHORT, schedule=Schedule("OneCycleLR", options={"max_lr": 0.1, "total_steps": 20})
    ),
    "accumulated": replace(SHORT, training=replace(SHORT.training, accumulate=2, clip_norm=1.0)),
    "bf16": replace(SHORT, training=replace(SHORT.training, precision="bf16")),
    "steps": replace(SHORT, training=replace(SHORT.training, steps=5, steps_per_epoch=2)),
    "unaveraged": replace(SHORT, training=replace(SHORT.training, ema=None, channels_last=True)),
    "semi-supervised": tiny_semi(training__accumulate=2),
    "semi-supervised-sam": tiny_semi(
        **{"objective": {"name": "sam", "rho": 0.1}, "semi.include_labelled": True}
    ),
    "fixmatch": tiny_fixmatch(),
    "fixmatch-sam": tiny_fixmatch(objective={"name": "sam", "rho": 0.1}, training__accumulate=2),
    "simclr": tiny_simclr(),
    "simclr-averaged": tiny_simclr(training__ema=0.5, training__epochs=2, measurement__every=0),
}


def run(path: Path, config: Config) -> dict[str, Any]:
    train(RunFolder(path), config, device="cpu")
    return left_behind(path)


@pytest.fixture
def stop_at(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Send a signal to this process when the trainer makes a step."""

    def arrange(step: int, number: int = signal.SIGTERM) -> None:
        advance = Trainer.advance

        def advanced(trainer: Trainer) -> None:
            advance(trainer)
            if trainer.step == step:
                os.kill(os.getpid(), number)

        monkeypatch.setattr(Trainer, "advance", advanced)

    return arrange


@pytest.mark.parametrize("kind", KINDS)
def test_same_bits_also_when_stopped(kind: str, tmp_path: Path, stop_at: Callable[..., None]) -> None:
    config = KINDS[kind]
    expected = run(tmp_path / "quiet", config)
    assert run(tmp_path / "again", config) == expected
    stop_at(step=4)
    with pytest.raises(Interrupted, match="after step 4"):
        run(tmp_path / "stopped", config)
    assert not RunFolder(tmp_path / "stopped").finished
    assert run(tmp_path / "stopped", config) == expected


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_finish_the_step_and_say_how_to_continue(
    number: int, tmp_path: Path, stop_at: Callable[..., None]
) -> None:
    stop_at(step=1, number=number)
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match="same command again") as stopped:
        train(RunFolder(tmp_path / "run"), SHORT, device="cpu")
    assert stopped.value.signal == number
    assert signal.getsignal(number) is before
    state = torch.load(tmp_path / "run" / "last.ckpt", weights_only=True)["state"]["trainer"]
    assert state["step"] == 1


def test_stopped_inside_an_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(SHORT, evaluation=replace(SHORT.evaluation, batch_size=50))
    expected = run(tmp_path / "quiet", config)

    def rude(model: Any, batches: Any, pause: Any) -> dict[str, float]:
        os.kill(os.getpid(), signal.SIGTERM)
        return errors(model, batches, pause)

    with monkeypatch.context() as patched:
        patched.setattr(supervised, "errors", rude)
        with pytest.raises(Interrupted):
            run(tmp_path / "stopped", config)
    assert RunFolder(tmp_path / "stopped").metrics() == []
    assert run(tmp_path / "stopped", config) == expected


def test_seeds_differ(tmp_path: Path) -> None:
    first, second = (run(tmp_path / str(seed), replace(SHORT, seed=seed)) for seed in (0, 1))
    assert first["best"] != second["best"]


def test_global_random_stream_is_given_back(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    run(tmp_path / "run", SHORT)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_finished_run_is_left_as_it_is(tmp_path: Path) -> None:
    run(tmp_path / "run", SHORT)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.joinpath("run").iterdir()}
    train(RunFolder(tmp_path / "run"), SHORT, device="cpu")
    before.pop(".lock")
    assert (
        before.items() <= {p.name: p.stat().st_mtime_ns for p in tmp_path.joinpath("run").iterdir()}.items()
    )


def test_another_config_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "run", SHORT)
    with pytest.raises(RunError, match=r"optimizer\.lr=0\.05; this one has 0\.2"):
        run(tmp_path / "run", replace(SHORT, optimizer=Optimizer(lr=0.2)))


def test_epochs_and_errors_of_the_summary(tmp_path: Path) -> None:
    train(RunFolder(tmp_path / "run"), tiny(), device="cpu")
    folder = RunFolder(tmp_path / "run")
    lines, summary = folder.metrics(), folder.summary()
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4]
    assert summary["last"] == lines[-1]
    assert summary["best"]["test_error"] == min(line["test_error"] for line in lines)
    assert summary["selected"]["validation_error"] == min(line["validation_error"] for line in lines)
    assert [line["epoch"] for line in lines if "s_rho" in line] == [2, 4]
    assert summary["timing"]["starts"] == 1
    assert len(folder.starts()[0]["versions"]["torch"]) > 3


def test_best_weights_are_those_of_the_selected_epoch(tmp_path: Path) -> None:
    config = tiny()
    train(RunFolder(tmp_path / "run"), config, device="cpu")
    task = Supervised(config, torch.device("cpu"))
    task.model.load_state_dict(load_weights(tmp_path / "run" / "best.safetensors"))
    found = errors(task.model, task.data.first("validation", -1))
    selected = RunFolder(tmp_path / "run").summary()["selected"]
    assert found["error"] == selected["validation_error"]
    assert found["loss"] == selected["validation_loss"]


def test_weights_to_start_from(tmp_path: Path) -> None:
    run(tmp_path / "run", SHORT)
    weights = str(tmp_path / "run" / "best.safetensors")
    model = Supervised(replace(SHORT, model=replace(SHORT.model, weights=weights)), torch.device("cpu")).model
    assert comparable(dict(model.state_dict())) == comparable(load_weights(Path(weights)))
    for change in ({"model.name": "wrn-10-2"}, {"data.name": "cifar10"}):  # other widths, other channels
        wrong = updated(SHORT, {"model.weights": weights, **change})
        with pytest.raises(RecipeError, match="does not fit the model"):
            network_to_train(wrong, spec_of(wrong.data.name), 8, torch.device("cpu"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (tiny_simclr(), tiny_semi()),  # a projector, then a classifier
        (tiny_semi(), tiny_simclr()),
        (tiny_simclr(), tiny_simclr(simclr__projector=(24, 8))),
        (tiny_semi(), tiny_semi(data__name="cifar100", data__image_size=8)),
        (tiny_simclr(), tiny_simclr(seed=9)),  # the very same network: all of it
    ],
    ids=["few-labels-after-simclr", "simclr-after-classes", "other-projector", "other-classes", "same"],
)
def test_an_encoder_goes_on_under_another_head(before: Config, after: Config, tmp_path: Path) -> None:
    gray = {"digits": spec_of("digits"), "cifar100": replace(spec_of("cifar100"), channels=1)}

    def network(config: Config) -> torch.nn.Module:
        torch.manual_seed(config.seed)
        return network_to_train(config, gray[config.data.name], 8, torch.device("cpu"))

    given = network(before).state_dict()
    save_weights(tmp_path / "given.safetensors", given, {})
    fresh = network(replace(after, seed=5)).state_dict()
    weights = str(tmp_path / "given.safetensors")
    made = network(replace(after, seed=5, model=replace(after.model, weights=weights))).state_dict()
    same_head = before.simclr == after.simclr and before.task == after.task and before.data == after.data
    for name, weight in made.items():
        expected = fresh if name.startswith("head.") and not same_head else given
        assert torch.equal(weight, expected[name]), name
