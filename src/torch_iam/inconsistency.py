"""S_rho of a model over data: the first door."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from torch_iam import checks
from torch_iam.ascent import PROBES, Climb, ExpectedDivergence, Slope, power_iteration, projected_ascent
from torch_iam.directions import Direction
from torch_iam.distributed import Ranks
from torch_iam.divergence import CategoricalKL, Divergence
from torch_iam.guards import mode
from torch_iam.inputs import Inputs, Output, batch_size, batches_of, logits_of, to_device
from torch_iam.neighborhood import Neighborhood
from torch_iam.options import above_zero, count_of
from torch_iam.perturb import Visit
from torch_iam.selection import Params

ASCENTS = ("power", "projected")


@dataclass(frozen=True)
class Estimate:
    """A measured S_rho.

    Attributes:
        value: the mean over restarts.
        stderr: its standard error over restarts; NaN for a single one.
        best: the largest of all restarts, the tightest lower bound on the maximum.
        direction: delta of that restart, by the weights' names; its norm is rho, or 0 where every start failed.
        trace: S after each ascent step, ``[restarts, steps]``, as the ascent saw it: in the dtype of the logits,
            and with ``probe="fisher"`` as the quadratic form of the Fisher matrix, but for the last of
            ``ascent="power"``. The other numbers are of the divergence itself, in double precision.
        rho: the radius.
        inputs: the number of examples behind the expectation.
        failed: how many starts found no direction, since their gradient was zero or not finite; S counts as 0 there.
    """

    value: float
    stderr: float
    best: float
    direction: dict[str, Tensor] = field(repr=False)
    trace: Tensor = field(repr=False)
    rho: float
    inputs: int
    failed: int = 0

    @property
    def restarts(self) -> int:
        """How many starts the mean is over."""
        return len(self.trace)

    def __str__(self) -> str:
        """One line, as ``print`` shows it."""
        spread = "" if math.isnan(self.stderr) else f" ± {self.stderr:.2g}"
        runs = "1 start" if self.restarts == 1 else f"{self.restarts} restarts"
        lost = f", {self.failed} of them failed" if self.failed else ""
        return f"S({self.rho:g}) = {self.value:.4g}{spread}   {runs}{lost}, {self.inputs} inputs"


def local_inconsistency(
    model: nn.Module,
    inputs: Inputs | Iterable[Any],
    rho: float,
    *,
    steps: int = 3,
    restarts: int = 5,
    ascent: str = "power",
    probe: str = "divergence",
    start_norm: float | None = None,
    step_size: float | None = None,
    sign: str = "either",
    divergence: Divergence | None = None,
    params: Params = None,
    metric: str = "euclidean",
    eta: float = 0.01,
    batch_size: int | None = None,
    inputs_of: Callable[[Any], Inputs] | None = None,
    output: Callable[[Output], Tensor] | None = None,
    training: bool = False,
    seed: int = 0,
    progress: Callable[[int, float], None] | None = None,
) -> Estimate:
    r"""How far the outputs of ``model`` can be moved by moving its weights by rho, without labels.

    .. math:: S_\rho(\theta) = \max_{\|\delta\| \le \rho} \mathbb{E}_x\,
        \mathrm{KL}\big(f(x; \theta)\,\|\,f(x; \theta + \delta)\big)

    The expectation runs over all inputs, exactly: gradients are accumulated over batches, and batches of
    any size count by their positions. Costs 2 + 3 K forward passes over the data a restart (the clean
    pass is shared). The model is left as it was found: mode, weights, gradients, buffers, random stream.

    Args:
        model: any module that yields logits ``[B, C]``, ``[B, T, V]`` or ``[B, C, H, W]``, or whatever
            ``divergence`` compares.
        inputs: a tensor, a tuple or a dict that the model takes, or an iterable of batches such as a
            DataLoader, whose labels are ignored. It is read once and kept.
        rho: the radius.
        steps: K, the ascent steps from each start.
        restarts: independent starts, whose spread gives the standard error.
        ascent: ``"power"`` is Algorithm 1; ``"projected"`` climbs slowly with decaying steps, as a check.
        probe: ``"divergence"``, or ``"fisher"`` for exact Fisher-vector products.
        start_norm: of ``ascent="power"``, expected norm of a random start; by default what the compute dtype
            resolves.
        step_size: first step length of ``ascent="projected"``, by default rho / 8.
        sign: ``"worst"`` evaluates both delta and -delta and takes the larger.
        divergence: :class:`~torch_iam.CategoricalKL` by default.
        params: which weights move, see :class:`~torch_iam.Neighborhood`.
        metric: ``"euclidean"`` or ``"adaptive"``.
        eta: of the adaptive metric.
        batch_size: cut larger batches into pieces of this many examples, to bound memory.
        inputs_of: what of a batch the model takes, where that is not its first element.
        output: which tensor of the model's answer counts, where it is not found by itself.
        training: measure in training mode, with BatchNorm on each batch and Dropout's masks held still.
        seed: of the starts.
        progress: called after each ascent step with the steps so far, of ``restarts * steps``, and S where it was.

    Returns:
        The estimate. A start whose gradient is zero or not finite counts with S = 0 at delta = 0, and is told
        in ``failed``.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3))
    >>> estimate = local_inconsistency(model, torch.randn(64, 2), rho=0.1, restarts=2)
    >>> estimate.best >= estimate.value > 0, estimate.trace.shape
    (True, torch.Size([2, 3]))
    """
    steps, restarts = count_of("steps", steps), count_of("restarts", restarts)
    if ascent not in ASCENTS or probe not in PROBES or sign not in ("either", "worst"):
        raise ValueError(
            f"ascent must be one of {ASCENTS}, probe one of {PROBES}, sign 'either' or 'worst'; "
            f"found {ascent!r}, {probe!r}, {sign!r}."
        )
    for name, number, needs in (("start_norm", start_norm, "power"), ("step_size", step_size, "projected")):
        if number is not None and ascent != needs:
            raise ValueError(f"{name}= is of ascent={needs!r}, and ascent={ascent!r} has no use for it.")
        if number is not None:
            above_zero(name, number)
    checks.outside_inference_mode("Measuring S takes gradients", "call it")
    model = Ranks.of(model).inner
    ball = Neighborhood(model, rho, params, metric, eta)
    generator = torch.Generator(ball.weights[0].device)
    with ExitStack() as held:
        held.enter_context(mode(model, training))
        landscape = _landscape(model, ball, inputs, divergence, output, batch_size, inputs_of)
        slope: Slope = landscape.fisher if probe == "fisher" else landscape.slope
        if progress is not None:
            slope = _told(slope, progress)
        climbs = []
        for restart in range(restarts):
            generator.manual_seed(seed + restart)
            climbs.append(_climb(landscape, slope, generator, steps, ascent, start_norm, step_size, sign))
        return _estimate(landscape, climbs)


@dataclass(frozen=True)
class _Result:
    value: float
    climb: Climb
    trace: Tensor


def _landscape(
    model: nn.Module,
    ball: Neighborhood,
    data: Any,
    divergence: Divergence | None,
    output: Callable[[Output], Tensor] | None,
    limit: int | None,
    inputs_of: Callable[[Any], Inputs] | None,
) -> ExpectedDivergence:
    """All batches with the logits of their clean pass."""
    read = logits_of if output is None else output
    device = ball.weights[0].device
    visits: list[tuple[Visit, Tensor]] = []
    with torch.no_grad():
        for batch in batches_of(data, limit, inputs_of):
            here = to_device(batch, device)
            checks.finite_inputs(here, wait=True, of=f"Batch {len(visits)}: ")
            visit = visits[0][0].elsewhere(here) if visits else Visit(model, here, leave_trace=False)
            clean = read(visit.clean())
            if bool(torch.isnan(clean).any()):
                raise ValueError(
                    f"The model answers batch {len(visits)} with NaN at its own weights: there is nothing to measure."
                )
            visits.append((visit, clean))
    first, clean = visits[0]
    checks.still(first, clean, read)
    return ExpectedDivergence(ball, CategoricalKL() if divergence is None else divergence, read, visits)


def _told(slope: Slope, progress: Callable[[int, float], None]) -> Slope:
    """The same slope, with a word after each step."""
    done = 0

    def told(delta: Direction) -> tuple[Tensor, Direction]:
        nonlocal done
        value, gradient = slope(delta)
        done += 1
        progress(done, float(value))
        return value, gradient

    return told


def _climb(
    landscape: ExpectedDivergence,
    slope: Slope,
    generator: torch.Generator,
    steps: int,
    ascent: str,
    start_norm: float | None,
    step_size: float | None,
    sign: str,
) -> _Result:
    ball = landscape.ball
    if ascent == "projected":
        climb = projected_ascent(ball, slope, ball.resized(ball.draw(generator)), steps, step_size)
    else:
        climb = power_iteration(ball, slope, ball.draw(generator, start_norm), steps)
    value = landscape.value(climb.delta)
    if sign == "worst":
        mirrored = list(torch._foreach_neg(climb.delta))
        other = landscape.value(mirrored)
        if other > value:
            climb, value = Climb(mirrored, climb.ok, climb.values), other
    trace = climb.values[1:]
    if ascent == "power":  # a projected ascent looks at every point that it comes to
        trace = [*trace, value]
    return _Result(float(value), climb, torch.stack([part.double() for part in trace]))


def _estimate(landscape: ExpectedDivergence, results: list[_Result]) -> Estimate:
    values = torch.tensor([result.value for result in results], dtype=torch.float64)
    best = max(results, key=lambda result: result.value)
    spread = float(values.std() / math.sqrt(len(values))) if len(values) > 1 else math.nan
    names = landscape.ball.names
    return Estimate(
        value=float(values.mean()),
        stderr=spread,
        best=best.value,
        direction=dict(zip(names, best.climb.delta, strict=True)),
        trace=torch.stack([result.trace for result in results]),
        rho=landscape.ball.rho,
        inputs=sum(batch_size(visit.inputs) for visit, _ in landscape.visits),
        failed=sum(not bool(result.climb.ok.all()) for result in results),
    )
