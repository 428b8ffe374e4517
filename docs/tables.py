"""Tables in Markdown from the files that the commands wrote."""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "docs" / "measured" / "demo.json"
BENCHMARKS = ROOT / "benchmarks" / "results"
STEP_COST = BENCHMARKS / "step_cost-wrn-16-1-cpu.json"
STEP_COST_GPU = [BENCHMARKS / f"step_cost-wrn-{size}-cuda.json" for size in ("16-8", "28-10")]
METHODS = {
    "plain": "Plain",
    "sam": "SAM",
    "iam-s": "IAM-S",
    "iam-d": "IAM-D",
    "iam-d-unlabelled": "IAM-D + unlabelled",
}
MEASURES = [BENCHMARKS / f"measures-{device}.json" for device in ("cpu", "cuda")]
README_ROWS = ("Plain", "SAM", "IAM-S", "IAM-D one-pass", "IAM-D", "IAM-D lean", "SAM of pytorch_optimizer")


def demo() -> str:
    """The table of ``iam demo``."""
    found = json.loads(DEMO.read_text(encoding="utf-8"))
    lines = ["| | test error % | S(0.1) | time per step |", "|---|---|---|---|"]
    for key, name in METHODS.items():
        row = found["methods"][key]
        error, spread = row["test_error_percent"], row["inconsistency"]
        lines.append(
            f"| {name} | {error['value']:.1f} ± {error['stderr']:.1f} | "
            f"{spread['value']:.4f} ± {spread['stderr']:.4f} | {row['time_ratio_to_plain']:.1f} × |"
        )
    runs = found["methods"]["plain"]["test_error_percent"]["n"]
    lines += [
        "",
        f"Mean ± standard error of {runs} seeds, {found['test_images']} test images; rho and beta chosen on "
        f"validation images. `iam demo`, {found['seconds']:.0f} seconds on {found['machine']}.",
    ]
    return "\n".join(lines)


def cost(rows: tuple[str, ...] | None) -> str:
    """Milliseconds and memory of a step relative to Plain; all rows, or some."""
    content = json.loads(STEP_COST.read_text(encoding="utf-8"))
    around, settings = content["environment"], content["settings"]
    lines = ["| | passes | time | its range | peak memory |", "|---|---|---|---|---|"]
    for row in content["rows"]:
        if rows is None or row["name"] in rows:
            span = f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}"
            lines.append(
                f"| {row['name']} | {row['passes']:.2f} | {row['ratio']:.2f} | {span} | {row['peak_ratio']:.2f} |"
            )
    lines += [
        "",
        f"Relative to Plain ({content['rows'][0]['ms']:.0f} ms a step): {settings['model']}, batch "
        f"{settings['batch']}, {settings['precision']}, {around['machine']['cpu']}, "
        f"{around['machine']['threads']} threads, torch {around['versions']['torch']}. Median and range of "
        f"{settings['rounds']} rounds of {settings['calls_a_round']} steps, variants in turn. Peak: tensors "
        f"beyond weights, optimizer state and batch. `{command(around)}`",
    ]
    return "\n".join(lines)


def gpu_cost(mode: str, rows: tuple[str, ...] | None) -> str:
    """Milliseconds of a step on a GPU, and relative to Plain in the same mode; all rows, or some."""
    contents = [json.loads(path.read_text(encoding="utf-8")) for path in STEP_COST_GPU]
    names = [content["settings"]["model"].upper() for content in contents]
    by_name = [{row["name"]: row for row in content["rows"] if row["mode"] == mode} for content in contents]
    weighed = "peak_ratio" in by_name[0]["Plain"]
    columns = ["ms", "× Plain (range)", *(["peak"] if weighed else [])]
    lines = [
        f"| | passes | {' | '.join(f'{name}: {column}' for name in names for column in columns)} |",
        "|---" * (2 + len(names) * len(columns)) + "|",
    ]
    for name, first in by_name[0].items():
        if rows is None or name in rows:
            cells = [name, f"{first['passes']:.2f}"]
            for found in by_name:
                row = found[name]
                ratio = f"{row['ratio']:.2f} ({row['ratio_low']:.2f} to {row['ratio_high']:.2f})"
                cells += [f"{row['ms']:.2f}", "1" if name == "Plain" else ratio]
                cells += [f"{row['peak_ratio']:.2f}"] if weighed else []
            lines.append(f"| {' | '.join(cells)} |")
    around, settings = contents[0]["environment"], contents[0]["settings"]
    lines += [
        "",
        f"{around['device']}, batch {settings['batch']}, {settings['precision']}, torch "
        f"{around['versions']['torch']}, {around['started'][:10]}. Median and range of {settings['rounds']} rounds "
        f"of {settings['calls_a_round']} steps, variants in turn. `{command(around)}` and the same for the other.",
    ]
    return "\n".join(lines)


def command(around: dict[str, Any]) -> str:
    """What was typed, without the place of the file."""
    words = around["command"]
    if "--out" in words:
        at = words.index("--out")
        words = words[:at] + words[at + 2 :]
    return " ".join(words)


def measures() -> str:
    """Seconds of each measure beside curvlinops, on every device that was measured; the CPU always is."""
    return "\n\n".join(measured(path) for path in MEASURES if path.exists() or path == MEASURES[0])


def measured(path: Path) -> str:
    """The table of one file of ``benchmarks/measures.py``."""
    content = json.loads(path.read_text(encoding="utf-8"))
    around, settings, rows = content["environment"], content["settings"], content["rows"]
    lines = [
        "| | seconds | products | over its passes | peak MiB | curvlinops: seconds | products | peak MiB "
        "| times faster |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [row["measure"], *timing(row)]
        cells.insert(3, f"{row['over_passes']['median']:.2f}")
        if "curvlinops" in row:
            faster = row["times_faster"]
            span = f" ({faster['low']:.1f} to {faster['high']:.1f})" if row["rounds"] > 1 else ""
            cells += [*timing(row["curvlinops"]), f"{faster['median']:.1f}{span}"]
        else:
            cells += [""] * 4
        lines.append(f"| {' | '.join(cells)} |")
    on_cpu = settings["device"] == "cpu"
    where = f"{around['machine']['cpu']}, one thread" if on_cpu else around["device"]
    rounds = f"Median and range of {rows[0]['rounds']} rounds" if rows[0]["rounds"] > 1 else "One round"
    lines += [
        "",
        f"{settings['model']} after {settings['training_steps']} steps, {settings['images']} images "
        f"({settings['data']}) in batches of {settings['batch']}, {where}, {settings['clock']}, "
        f"torch {around['versions']['torch']}, curvlinops {settings['curvlinops']}. Eigenvalues to a relative "
        f"residual of {settings['tolerance']:g}, Tr(F) to a standard error of {settings['fisher_trace']:g}, "
        f"Tr(H) of {settings['hessian_trace']:g}. {rounds}, variants in turn. "
        f"`{command(around)}`",
    ]
    return "\n".join(lines)


def timing(row: dict[str, Any]) -> list[str]:
    """Seconds, products, and the peak where it was measured; a star where the tolerance was not met."""
    seconds, peak = row["seconds"]["median"], row["peak_mib"]
    star = "" if row["converged"] else " *"
    return [
        f"{seconds:.{1 if seconds >= 1 else 2}f}{star}",
        str(row["products"]),
        "" if peak is None else f"{peak:.0f}",
    ]
