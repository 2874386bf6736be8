#!/usr/bin/env bash
# Train on several hosts with SLURM, one worker on each:
#
#   sbatch --nodes=4 examples/cluster/slurm.sh digits --out /shared/runs/digits
#
# The arguments are those of `jem-tf train`. --out must be on a file system that all hosts see. A job
# that is stopped or loses a host resumes from its last checkpoint when it is queued again.
#SBATCH --job-name=jem-tf
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

PORT=${PORT:-$((20000 + SLURM_JOB_ID % 20000))}
WORKERS=""
for host in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
  WORKERS+="${WORKERS:+, }\"$host:$PORT\""
  PORT=$((PORT + 1)) # several names may be one host
done
export WORKERS

# shellcheck disable=SC2016 # each task expands its own number
srun bash -c '
  TF_CONFIG="{\"cluster\": {\"worker\": [$WORKERS]},
              \"task\": {\"type\": \"worker\", \"index\": $SLURM_PROCID}}"
  export TF_CONFIG
  exec jem-tf train "$@" --strategy multi-worker --resume' jem-tf "$@"
