#!/bin/sh
# Install torch and DGL: STACK=debian (Debian's own CPU torch, small) or STACK=pypi (the CUDA builds of
# PyPI, large). What pip installs is locked with its hashes, dglrun's dependencies included, unless other
# versions or WHEELS are named. Writes constraints.txt, which keeps later layers from replacing what fits
# together.
set -eu

home=/opt/dgl-operator
constraints=$home/constraints.txt

install_packages() {
    apt-get update
    apt-get install --no-install-recommends --yes "$@"
    apt-get clean
    rm -rf /var/lib/apt/lists/*
}

install_locked() {
    if [ -z "${TORCH_VERSION:-}${DGL_VERSION:-}${WHEELS:-}" ]; then
        python3 -m pip install --require-hashes --requirement "$home/$STACK.lock"
    else
        python3 -m pip install --constraint "$constraints" ${WHEELS:+--find-links "$WHEELS"} "$@"
    fi
}

debian_stack() {
    if [ -n "${TORCH_VERSION:-}" ] && [ "$TORCH_VERSION" != 1.13.1 ]; then
        echo "STACK=debian has torch 1.13.1; for $TORCH_VERSION use STACK=pypi" >&2
        exit 2
    fi
    install_packages python3 python3-pip python3-torch python3-numpy python3-packaging
    # Debian's package is 1.13.1 but calls itself 1.13.0a0, which DGL refuses.
    sed -i "s/^__version__ = '1.13.0a0'/__version__ = '1.13.1'/" /usr/lib/python3/dist-packages/torch/version.py
    install_locked "dgl==${DGL_VERSION:-1.1.3}"
}

pypi_stack() {
    install_packages python3 python3-pip libgomp1
    echo "torch==${TORCH_VERSION:-2.2.1}" >> "$constraints"
    install_locked torch torchdata "dgl==${DGL_VERSION:-2.1.0}" numpy pandas pydantic pyyaml
}

case ${STACK:-} in
debian | pypi) ;;
*)
    echo "STACK: expected debian or pypi, got '${STACK:-}'" >&2
    exit 2
    ;;
esac
grep -v -E '^(torch|dgl)==' "$home/$STACK.in" > "$constraints"
"${STACK}_stack"
