#!/bin/bash
# One experiment over the ranks of an MPI job: sbatch slurm-mpi.sh experiment.toml. Needs a mile with the feature mpi.
#SBATCH --job-name=mile
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=4
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
set -eu
experiment=${1:?expected an experiment file, as in: sbatch slurm-mpi.sh experiment.toml}
export RAYON_NUM_THREADS=$SLURM_CPUS_PER_TASK
# On a disk that all nodes see. A job that is requeued, or submitted again, continues the run.
out=$SLURM_SUBMIT_DIR/runs/$SLURM_JOB_NAME
resume=()
[ ! -e "$out/config.toml" ] || resume=(--resume)
exec srun --cpu-bind=cores mile run "$SLURM_SUBMIT_DIR/$experiment" --out "$out" "${resume[@]}"
