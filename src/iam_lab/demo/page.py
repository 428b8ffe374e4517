"""The page of the demo: what local inconsistency is, and what training with it did to 100 labels."""

from __future__ import annotations

from importlib.resources import files

from iam_lab.demo.data import LABELS, VALIDATION
from iam_lab.demo.figures import boundary_figures, error_figure, training_figures
from iam_lab.demo.methods import METHODS, Method
from iam_lab.demo.result import SHOWN_RHO, Result
from iam_lab.demo.study import RHO, SIZES, UNLABELLED_BATCH
from iam_lab.page import figure, figures, page
from iam_lab.report.markup import Markup, items, joined, table, tag

CODE = """\
import torch_iam as iam

# How fragile is it?
print(iam.local_inconsistency(model, inputs, rho=0.1))

# Train it not to be: one call in place of loss.backward().
objective = iam.IAMD(model, rho=0.1, beta=1.0)
objective.backward(x, y, criterion, unlabeled=xu)
optimizer.step()
"""


def demo_page(result: Result) -> str:
    """The HTML document."""
    return page(
        "Learning from what does not change: the IAM demo",
        tag("h1", "How fragile are a network’s outputs?"),
        tag(
            "p",
            "Two networks can fit the same data equally well and still differ: nudge the weights of one a little and "
            "its answers change; nudge the other’s and they stay. Inconsistency-Aware Minimization (IAM) measures "
            "the difference without any labels, and trains networks whose answers stay.",
            css="lead",
        ),
        *_idea(result),
        *_outcome(result),
        *_training(result),
        *_how(result),
        tag(
            "footer", f"Written by: {result.command}. {result.machine}. {result.seconds:.0f} seconds in all."
        ),
        extra_css=files("iam_lab.demo").joinpath("demo.css").read_text(),
    )


def _idea(result: Result) -> list[Markup]:
    by_delta, by_noise = boundary_figures(result)
    toy = result.toy
    return [
        tag("h2", "The idea"),
        tag(
            "p",
            "Move the weights θ by a step δ no longer than ρ, and compare the probabilities that the network gives "
            "before and after. Local inconsistency is how far apart they can get:",
        ),
        tag(
            "div",
            Markup(
                "<i>S</i><sub>ρ</sub>(θ) = max<sub>‖δ‖ ≤ ρ</sub> E<sub><i>x</i></sub> "
                "KL( <i>f</i>(<i>x</i>; θ) ‖ <i>f</i>(<i>x</i>; θ + δ) )"
            ),
            css="formula",
        ),
        tag(
            "p",
            "No label appears in it. The worst δ is found by following the gradient of this divergence: one step is "
            "often enough, because a network is far more sensitive in a few directions than in all others. The "
            "pictures show a network with three classes in the plane, moved along such a direction and along a "
            "random one of the same length.",
        ),
        figures(
            figure(
                by_delta,
                f"One gradient step finds a direction that moves the boundaries: "
                f"{100 * toy.changed_by_delta:.1f} % of the points change class.",
            ),
            figure(
                by_noise,
                f"The random direction it started from, at the same length: "
                f"{100 * toy.changed_by_noise:.1f} % of the points change class.",
            ),
        ),
        tag(
            "p",
            tag("b", "IAM-D"),
            " minimises the loss plus β S: fit the labels, and stay where the outputs are steady. Since S needs no "
            "labels, it can also be computed on images that have none. ",
            tag("b", "IAM-S"),
            " minimises the loss at θ + δ instead, with the same δ; ",
            tag("b", "SAM"),
            ", its well-known relative, does so too, but takes the δ that raises the loss, which needs labels.",
        ),
    ]


def _outcome(result: Result) -> list[Markup]:
    seeds = len(result.of("plain"))
    runs = f"{seeds} runs" if seeds > 1 else "one run"
    return [
        tag("h2", f"Digits from {LABELS} labels"),
        tag(
            "p",
            f"A network with two hidden layers learns 8 × 8 images of handwritten digits from {LABELS} labelled "
            "ones, ten of each digit; 900 more come without a label. The errors are on "
            f"{result.test_images} test images, over {runs} of each method that differ in labels and first weights.",
        ),
        tag("p", _verdict(result)),
        tag("div", figure(error_figure(result), _dots(seeds)), css="wide"),
        table(
            ["Method", "Test error (%)", "Gain on Plain", f"S at ρ = {RHO:g}", "Time per step", "Chosen"],
            [_row(result, one) for one in METHODS],
            label="Results by method",
        ),
        tag(
            "p",
            "Gain on Plain: percentage points, seed by seed, mean ± standard error. S: nats, on the test images, "
            "3 ascent steps. Time: on one thread, against Plain in turn with it; the last method’s batch is twice "
            "as large.",
            css="caveat",
        ),
    ]


def _verdict(result: Result) -> str:
    """The outcome in words: whatever it is."""
    ranked = sorted(METHODS, key=lambda one: result.error(one.key).value)
    best, plain = ranked[0], result.error("plain")
    if best.key == "plain":
        return (
            f"Nothing beat plain training here: it errs on {plain} % of the test images, every other way on as "
            "many or more."
        )
    gain = result.gain(best.key)
    first = (
        f"{best.look.name} came out best: {result.error(best.key).text(1)} % wrong, "
        f"against {plain.text(1)} % for plain training on the same labels, {gain.text(1)} points less. "
    )
    clear = [one for one in METHODS if _is_clear(result, one)]
    unclear = [one for one in METHODS if one not in clear and one.key != "plain"]
    parts = [first]
    if clear:
        parts.append(f"More than two standard errors from plain: {_names(clear)}. ")
    if unclear:
        parts.append(f"Not clearly different from it in so few runs: {_names(unclear)}.")
    return "".join(parts)


def _is_clear(result: Result, one: Method) -> bool:
    gain = result.gain(one.key)
    return one.key != "plain" and gain.stderr is not None and abs(gain.value) > 2 * gain.stderr


def _names(methods: list[Method]) -> str:
    return ", ".join(one.look.name for one in methods)


def _dots(seeds: int) -> str:
    return (
        "Pale dots: single runs. Symbols: their mean, with its standard error." if seeds > 1 else "One run."
    )


def _row(result: Result, one: Method) -> list[str | Markup]:
    cost, options = result.costs[one.key], result.tuned.options[one.key]
    swatch = Markup(f'<span class="swatch" style="background:{one.look.colour}"></span>')
    chosen = ", ".join(f"{ {'rho': 'ρ', 'beta': 'β'}[name] } = {value:g}" for name, value in options.items())
    at = result.inconsistency(one.key)
    return [
        joined([swatch, one.look.name, tag("span", one.what, css="what")]),
        tag("span", result.error(one.key).text(1), css="ours"),
        "" if one.key == "plain" else result.gain(one.key).text(1),
        at.text(4),
        f"{cost.ratio:.1f} × ({cost.milliseconds:.2f} ms)",
        chosen or "–",
    ]


def _training(result: Result) -> list[Markup]:
    errors, found = training_figures(result)
    band = "Mean over the runs; the band is its standard error."
    return [
        tag("h2", "On the way"),
        tag(
            "p",
            "Both are measured on the test images, S without their labels. Only IAM-D minimises S; with the others "
            "it comes out as it may.",
        ),
        figures(figure(errors, band), figure(found, band + " The scale is logarithmic.")),
    ]


def _how(result: Result) -> list[Markup]:
    tuned, effort = result.tuned, result.effort
    chosen = {one.key: tuned.chosen(one.key) for one in METHODS}
    layers = "-".join(map(str, SIZES))
    trials = [
        [
            one.look.name,
            ", ".join(f"{name} {value:g}" for name, value in chosen[one.key].options.items()),
            f"{chosen[one.key].error:.1f}"
            + ("" if chosen[one.key].stderr is None else f" ± {chosen[one.key].stderr:.1f}"),
            str(sum(trial.key == one.key for trial in tuned.trials)),
        ]
        for one in METHODS
    ]
    return [
        tag("h2", "How it was measured"),
        items(
            [
                f"Data: scikit-learn’s 1,797 digits. Every fifth is a test image; {VALIDATION} others validate; "
                f"the remaining 1,000 are the pool from which a run draws its {LABELS} labels.",
                f"Network {layers}, SGD with momentum 0.9 on all {LABELS} labelled images at once (and "
                f"{UNLABELLED_BATCH} drawn unlabelled ones), {effort.steps} steps, cosine learning rate from "
                f"{tuned.learning_rate:g}, weight decay {tuned.weight_decay:g}. One ascent step for IAM (K = 1).",
                "Learning rate and weight decay were chosen for plain training and used for all; then ρ and β for "
                "each method. All by the error on the validation images, over runs with other labels and weights "
                "than these; the test images had no part in it. That is more labelled images than are learned "
                "from: a comfort that a real task with 100 labels would not have.",
                f"The boundaries: a 2-70-70-3 network after {effort.toy_steps} steps on {len(result.toy.points)} "
                f"points of three Gaussians, ‖δ‖ = ‖ε‖ = {SHOWN_RHO:g}.",
                f"{result.test_images} test images are few: one image is {100 / result.test_images:.2f} points, and "
                "the standard errors say how the mean varies with labels and weights, not with the test images.",
            ]
        ),
        tag(
            "details",
            tag("summary", "What was chosen, and from how many"),
            table(
                ["Method", "Chosen", "Validation error (%)", "Points of the grid"],
                trials,
                label="Hyper-parameters",
            ),
            tag(
                "p",
                f"Written by: {tuned.command}. {tuned.machine}. {tuned.trials[0].runs} runs a point; the whole grid "
                "is in tuned.json of the package.",
                css="caveat",
            ),
        ),
        tag("h2", "In your own training loop"),
        tag("pre", tag("code", CODE)),
    ]
