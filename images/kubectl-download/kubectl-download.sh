#!/bin/sh
# Copy kubectl into the volume that the job's containers share: whole or not at all.
set -eu

target=${1:-/opt/kube}
source=$(dirname "$0")/kubectl
fresh=$target/.kubectl.$$

fail() {
    rm -f "$fresh"
    printf 'kubectl-download: %s\n' "$1" >&2
    if [ -w /dev/termination-log ]; then
        printf 'kubectl-download: %s\n' "$1" > /dev/termination-log
    fi
    exit 74
}

problem=$(install -m 0755 "$source" "$fresh" 2>&1) || fail "$problem"
problem=$(cmp "$source" "$fresh" 2>&1) || fail "the copy differs: $problem"
problem=$(mv "$fresh" "$target/kubectl" 2>&1) || fail "$problem"
echo "kubectl-download: $target/kubectl is in place"
