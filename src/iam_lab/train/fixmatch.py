"""FixMatch: certain answers on weakly augmented images are labels for strongly augmented ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

import torch_iam as iam
from iam_lab.data.augment import Views
from iam_lab.errors import RecipeError
from iam_lab.recipes.few_labels import FixMatch as Fields
from iam_lab.recipes.schema import Config
from iam_lab.train.data import RunData, augmentation
from iam_lab.train.few_labels import PairedBatches, few_labels, in_memory
from iam_lab.train.numerics import autocast, field
from iam_lab.train.semi_supervised import SemiSupervised
from iam_lab.train.supervised import Labelled
from torch_iam.guards import copies, no_autocast
from torch_iam.inputs import logits_of

IGNORED = -100
"""The label of an image without one: cross-entropy leaves it out of its mean."""


@dataclass(frozen=True)
class FixMatchStep(iam.Step):
    """A step, with what happened on strong views; ``loss`` is that of the labelled images.

    Attributes:
        unlabelled_loss: the loss on strong views, before its weight.
        chosen: share of the images without label that got one from their weak view.
    """

    unlabelled_loss: Tensor
    chosen: Tensor


class FixMatch(SemiSupervised):
    r"""The published FixMatch (Sohn et al., 2020), by any objective.

    .. math:: L = \mathrm{CE}(x, y) + \lambda\, \tfrac{1}{\mu B} \sum_u \mathbf{1}[\max p(u_w) \ge \tau]\,
        \mathrm{CE}(u_s, \arg\max p(u_w)) + \beta\, S_\rho(x \cup u_w)

    **Where the objective enters.** It differentiates the labelled loss; IAM-D and IAM-S compare outputs on
    labelled images *and* weak views. The loss on strong views is differentiated at the weights themselves,
    and the two gradients add. SAM so perturbs the labelled loss alone, as in the paper.

    **BatchNorm.** Through BatchNorm an output depends on the whole batch, so a perturbed output may only be
    compared with a clean one of the very same batch: otherwise the divergence is above zero at delta = 0, and
    it is the batch that the ascent climbs. Labelled images and weak views therefore pass through the network
    together, in one clean pass that gives the labelled loss, the labels for the strong views and the clean
    side of S; the ascent and the perturbed pass see that batch again. It is the same for all objectives, so
    that FixMatch with SAM or IAM-D differs from FixMatch in its objective and in nothing else.

    Strong views have a pass of their own: in the common one they would have to be perturbed as well, at
    nearly twice the cost, and would shift the statistics that weak views are normalised with. They are
    normalised by their own batch and leave no trace in the running statistics: these are updated once a step,
    from labelled images and weak views, which look like the images of an evaluation. (The published code
    normalises all three kinds together; updating from both passes would weigh the strong views as much as
    everything else.)

    **Parts of a batch.** The ascent of ``batch_fraction=q`` sees the first rows, and labelled images come
    first: with B of them and mu B others, q = 1 / (1 + mu) climbs on labelled images alone, and 1 / 8 does so
    in the published batch of 64 and 448.

    **Cost**, with B labelled images and mu B without: (B + mu B) + mu B images forward and back; with IAM-D
    (B + mu B) more for the perturbed pass, and as many for each ascent step.

    Args:
        config: of the run.
        device: where model and data live.
    """

    def __init__(self, config: Config, device: torch.device) -> None:
        self.fields = _checked(config)
        self._halved = False
        super().__init__(config, device)

    def new_data(self, config: Config, device: torch.device) -> tuple[RunData, PairedBatches]:
        """Images with labels, and two views of images without."""

        def views(data: RunData) -> Views:
            with field("fixmatch.strong"):
                strong = augmentation(config, data.spec, config.fixmatch.strong)
            return Views((in_memory(data)[1], strong))

        return few_labels(config, device, views)

    def backward(
        self, batch: Labelled, *, loss_scale: float = 1.0, scaler: torch.amp.GradScaler | None = None
    ) -> FixMatchStep:
        """The objective's gradient on labelled images and weak views, and that of the loss on strong views."""
        (images, (weak, strong)), labels = batch
        self._set_radius()
        with autocast(self.config.training, self.device):
            step = self._on_clean_pass(images, weak, labels, loss_scale=loss_scale, scaler=scaler)
            guessed = logits_of(step.outputs)[len(images) :].float()
            loss, chosen = strong_loss(logits_of(traceless(self.called, strong)), guessed, self.fields)
        weighted = self.fields.weight * loss
        scaled = weighted * loss_scale
        with no_autocast(self.device):
            (scaled if scaler is None else scaler.scale(scaled)).backward()  # type: ignore[no-untyped-call]
        seen = {f.name: getattr(step, f.name) for f in fields(step)}
        objective = step.objective + weighted.detach()
        seen |= {"objective": objective, "finite": torch.isfinite(objective)}
        return FixMatchStep(**seen, unlabelled_loss=loss.detach(), chosen=chosen)

    def watch(self, batch: Labelled, step: iam.Step) -> Mapping[str, Tensor]:
        """The error on labelled images; the loss on strong views, and how many have a label, in percent."""
        assert isinstance(step, FixMatchStep)
        more = {"train_unlabelled_loss": step.unlabelled_loss, "train_chosen": 100 * step.chosen}
        return {**super().watch(batch, step), **more}

    def _on_clean_pass(self, images: Tensor, weak: Tensor, labels: Tensor, **options: Any) -> iam.Step:
        """The objective on both kinds; one without a use for unlabelled images has them in its batch only."""
        if self.objective.uses_unlabeled:
            return self.objective.backward(images, labels, self.criterion, weak, **options)
        ignored = labels.new_full((len(weak),), IGNORED)
        everything, known = torch.cat([images, weak]), torch.cat([labels, ignored])
        return self.objective.backward(everything, known, self.criterion, **options)

    def _set_radius(self) -> None:
        """Halve the radius once it is time, counted by the batches drawn, so that a resumed run does it too."""
        rho, after, pool = self.config.objective.rho, self.fields.halve_rho_after, self.paired.unlabelled
        if rho is None or after is None or self._halved:
            return
        step = (pool.epoch * len(pool) + pool.position - 1) // self.config.training.accumulate
        if step >= after:
            assert isinstance(self.objective, iam.SAM | iam.IAMD | iam.IAMS)  # which have a radius
            self.objective.ball.rho = rho / 2
            self._halved = True


def strong_loss(strong: Tensor, weak: Tensor, recipe: Fields) -> tuple[Tensor, Tensor]:
    """Cross-entropy of strong views with the answers of certain weak views, and the share that is certain.

    Args:
        strong: logits of the strong views, ``[U, C]``.
        weak: logits of the weak views of the same images, ``[U, C]``; nothing is differentiated in them.
        recipe: threshold, and over which images the mean is.

    >>> weak = torch.tensor([[9.0, 0.0], [0.1, 0.0]])
    >>> loss, chosen = strong_loss(torch.zeros(2, 2), weak, Fields())
    >>> f"{float(loss):.4f} {float(chosen)}"  # ln 2 of one image, over two
    '0.3466 0.5'
    """
    certainty, guesses = weak.detach().softmax(1).max(1)
    certain = (certainty >= recipe.threshold).float()
    losses = F.cross_entropy(strong.float(), guesses, reduction="none") * certain
    count = certain.sum().clamp(min=1) if recipe.mean_over == "chosen" else len(losses)
    return losses.sum() / count, certain.mean()


def traceless(model: nn.Module, inputs: Tensor) -> Any:
    """An ordinary forward pass whose buffers, such as BatchNorm's running statistics, stay as they were."""
    return functional_call(model, copies(dict(model.named_buffers())), (inputs,))


def _checked(config: Config) -> Fields:
    recipe = config.fixmatch
    if recipe.halve_rho_after is not None and config.objective.rho is None:
        raise RecipeError(
            f"fixmatch.halve_rho_after: objective {config.objective.name!r} has no radius; leave it out."
        )
    if recipe.halve_rho_after is not None and config.training.cuda_graph:
        raise RecipeError(
            "fixmatch.halve_rho_after does not go with training.cuda_graph, which freezes the radius: "
            "set that to False."
        )
    return recipe
