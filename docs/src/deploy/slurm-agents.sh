#!/bin/bash
# One agent for each task, over the network, without MPI: sbatch --ntasks=N slurm-agents.sh experiment.toml, for N agents.
#SBATCH --job-name=mile-agents
#SBATCH --ntasks=8
#SBATCH --cpus-per-task=2
#SBATCH --distribution=block
#SBATCH --time=04:00:00
#SBATCH --requeue
set -eu
experiment=${1:?expected an experiment file, as in: sbatch --ntasks=8 slurm-agents.sh experiment.toml}
export RAYON_NUM_THREADS=$SLURM_CPUS_PER_TASK
# On a disk that all nodes see.
run=$SLURM_SUBMIT_DIR/runs/$SLURM_JOB_NAME
cd "$SLURM_SUBMIT_DIR"
mkdir -p "$run"
# The node of each task, in the order of the agents, each with its own port. A job that was requeued may be on other nodes: addresses are
# written again, while keys and checkpoints stay.
srun bash -c 'echo "$SLURM_PROCID=$(hostname):$((7100 + SLURM_LOCALID))"' | sort -n > "$run/hosts.txt"
mile swarm "$experiment" --emit "$run" --hosts "$run/hosts.txt" --set agent.transport=tcp
srun --kill-on-bad-exit=0 bash -c "mile agent $run/agents/\$SLURM_PROCID/agent.toml"
mile gather "$run" --out "$run-gathered"
