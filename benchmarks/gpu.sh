#!/usr/bin/env bash
# All that wants a GPU, what tells most first:  IAM_DATA=... benchmarks/gpu.sh OUT
# A part that fails or takes too long is told in OUT/parts.log and keeps nobody else from running.
set -u
cd "$(dirname "$0")/.."
out=${1:?where to write: benchmarks/gpu.sh OUT}
mkdir -p "$out"
export PYTHONUNBUFFERED=1

part() { # name, seconds it may take, command
    local name=$1 limit=$2
    shift 2
    echo "$(date +%T) $name: $*" >>"$out/parts.log"
    timeout "$limit" "$@" >"$out/$name.log" 2>&1
    echo "$(date +%T) $name: ended with $?" >>"$out/parts.log"
}

part tests 150 python -m pytest -q tests/test_capture.py -k cuda -n 6
for model in wrn-16-8 wrn-28-10; do
    part "cost-$model" 200 python benchmarks/step_cost.py --device cuda --model "$model" --modes graph overlap \
        --calls 20 --rounds 5 --out "$out/step_cost-$model-cuda-graph.json"
done
part measures 240 python benchmarks/measures.py --device cuda --images 5000 --batch 500 --rounds 2 \
    --out "$out/measures-cuda.json"
for model in wrn-16-8 wrn-28-10; do
    part "train-$model" 240 python benchmarks/train_throughput.py --device cuda --model "$model" --data cifar10 \
        --rounds 7 --steps 20 --out "$out/train_throughput-cuda-$model.json"
done
