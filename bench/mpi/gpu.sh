#!/bin/bash
# Exchanges between ranks on GPUs, through host memory and, if MPI is CUDA-aware, between GPU memories. Run `cargo build --release` before, or
# give the program. MPIRUN replaces mpirun, MPIFLAGS its flags.
cd "$(dirname "$0")"
B=${1:-target/release/mile-bench-mpi}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 RAYON_NUM_THREADS=1
mpirun=${MPIRUN:-mpirun}
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
$mpirun --version | head -1
ways=${WAYS:-0 1}
for p in 2 3; do
    for n in 10000 100000 1000000 10000000; do
        for way in $ways; do
            MILE_CUDA_AWARE_MPI=$way timeout 60 $mpirun ${MPIFLAGS:---oversubscribe --bind-to core} -n $p "$B" gpu $((4 * p)) $n $([ $n -gt 1000000 ] && echo 20 || echo 100) || echo "failed: $p ranks, n = $n, way $way"
        done
    done
done
