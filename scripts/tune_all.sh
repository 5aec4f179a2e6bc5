#!/usr/bin/env bash
# tune_all.sh MIRROR [TOTAL] [BUDGET] [AT_A_TIME] [DATASETS]: tune every method that declares a search space, with equal CPU
# time each.
#
#     nohup nice scripts/tune_all.sh MIRROR 12m 20s 2 autompg,laser,slump,skillcraft,grid-stability > results/tune_all.log 2>&1 &
#
# MIRROR holds the tables of the development suite that are not bundled (scripts/make_mirror.py). Stop it whenever you
# like: the same command goes on from there, as long as the code is not edited. Each method ends with
# methods/defaults/METHOD.toml and prints the lines of its file to change; tests/tuning/test_defaults.py checks them.
set -euo pipefail
mirror=$1 total=${2:-1h} budget=${3:-20s} at_a_time=${4:-2} datasets=${5:+--datasets $5}
cd "$(dirname "$0")/.."
mkdir -p results
export OMP_NUM_THREADS=1
python -c 'from fsibench import registry
print("\n".join(name for name, method in sorted(registry.methods().items.items()) if method.search))' |
  xargs -P "$at_a_time" -I METHOD sh -c \
    'fsibench tune METHOD --total '"$total"' --budget '"$budget"' --seed 0 '"$datasets"' --mirror '"$mirror"' > results/tune-METHOD.log 2>&1'
tail -n 12 results/tune-*.log
