#!/bin/sh
# Copy kubectl into the volume that the job's containers share: whole or not at all.
set -eu

target=${1:-/opt/kube}
source=$(dirname "$0")/kubectl
fresh=$target/.kubectl.$$

fail() { # CODE MESSAGE
    rm -f "$fresh"
    printf 'kubectl-download: %s\n' "$2" >&2
    if [ -w /dev/termination-log ]; then
        printf 'kubectl-download: %s\n' "$2" > /dev/termination-log
    fi
    exit "$1"
}

# The operator's contract version; dglrun/contract/version.py says which ones work together.
oldest=1
newest=2
version=${DGL_OPERATOR_CONTRACT_VERSION:-1}
case $version in
    *[!0-9]*) fail 76 "DGL_OPERATOR_CONTRACT_VERSION: expected a whole number, got '$version'" ;;
esac
if [ "$version" -lt $oldest ] || [ "$version" -gt $newest ]; then
    remedy="use the images watcher-loop and kubectl-download of the operator's release"
    served="the init container's image serves $oldest to $newest"
    fail 76 "the operator has contract version $version, $served: $remedy"
fi

problem=$(install -m 0755 "$source" "$fresh" 2>&1) || fail 74 "$problem"
problem=$(cmp "$source" "$fresh" 2>&1) || fail 74 "the copy differs: $problem"
problem=$(mv "$fresh" "$target/kubectl" 2>&1) || fail 74 "$problem"
echo "kubectl-download: $target/kubectl is in place"
