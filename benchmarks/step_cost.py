"""Milliseconds and peak memory of a training step: ``iam bench``, with its result among the others.

    python benchmarks/step_cost.py                                   # a small WRN on the CPU
    python benchmarks/step_cost.py --device cuda --model wrn-16-8    # eager, compiled, one CUDA graph

Every objective and option is timed beside pytorch_optimizer's SAM and a SAM written by hand the usual way, which
perturbs the weights in place; all see the same batch in every call. ``iam bench --help`` has the options.
"""

from __future__ import annotations

import sys

from harness import RESULTS

from iam_lab.commands.bench import main

if __name__ == "__main__":
    sys.exit(main(["--out", str(RESULTS), *sys.argv[1:]]))
