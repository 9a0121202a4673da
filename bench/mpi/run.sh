#!/bin/bash
# Benchmarks of mile over MPI on one machine with 16 cores. Run `cargo build --release` before. MPIFLAGS replaces the flags of mpirun.
cd "$(dirname "$0")"
B=${1:-target/release/mile-bench-mpi}
lscpu | grep -E 'Model name|^CPU\(s\)|Thread|NUMA node|L2|L3'
mpirun --version | head -1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ranks() { RAYON_NUM_THREADS=1 timeout 40 mpirun ${MPIFLAGS:---bind-to core} -n "$@" || echo "failed: $*"; }
alone() { RAYON_NUM_THREADS=$1 timeout 40 $B simulator "${@:2}" || echo "failed: $*"; }
echo "## P = 2, n = 10^6, 10 agents"
for k in 1 2 3; do alone 2 10 1000000 30; ranks 2 $B round 10 1000000 30; done
echo "## exchange"
for p in 2 16; do for n in 1000 10000 100000 1000000 10000000; do ranks $p $B exchange $((4 * p)) $n $([ $n -gt 1000000 ] && echo 10 || echo 100); done; done
echo "## weak scaling, 4 agents a rank, n = 10^6"
for p in 1 2 4 8 16; do ranks $p $B round $((4 * p)) 1000000 20; alone $p $((4 * p)) 1000000 20; done
echo "## 10^4 agents, n = 10^3"
for p in 1 2 4 8 16; do ranks $p $B round 10000 1000 50; alone $p 10000 1000 50; done
echo "## 16 agents, n = 10^8"
ranks 16 $B round 16 100000000 3
alone 16 16 100000000 3
ranks 16 $B exchange 16 100000000 3
