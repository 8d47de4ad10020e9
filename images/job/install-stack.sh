#!/bin/sh
# Install torch and DGL: STACK=debian (Debian's own CPU torch, small) or STACK=pypi (the CUDA builds of
# PyPI, large). Writes constraints.txt, which keeps later layers from replacing what fits together.
set -eu

constraints=/opt/dgl-operator/constraints.txt

install_packages() {
    apt-get update
    apt-get install --no-install-recommends --yes "$@"
    apt-get clean
    rm -rf /var/lib/apt/lists/*
}

debian_stack() {
    if [ -n "${TORCH_VERSION:-}" ] && [ "$TORCH_VERSION" != 1.13.1 ]; then
        echo "STACK=debian has torch 1.13.1; for $TORCH_VERSION use STACK=pypi" >&2
        exit 2
    fi
    install_packages python3 python3-pip python3-torch python3-numpy python3-packaging
    # Debian's package is 1.13.1 but calls itself 1.13.0a0, which DGL refuses.
    sed -i "s/^__version__ = '1.13.0a0'/__version__ = '1.13.1'/" /usr/lib/python3/dist-packages/torch/version.py
    # pyarrow 21 and later refuse numpy 1.24, which this torch was built with.
    printf '%s\n' 'numpy<1.25' 'scipy<1.12' 'pyarrow<21' > "$constraints"
    python3 -m pip install --constraint "$constraints" ${WHEELS:+--find-links "$WHEELS"} \
        "dgl==${DGL_VERSION:-1.1.3}"
}

pypi_stack() {
    install_packages python3 python3-pip libgomp1
    printf '%s\n' "torch==${TORCH_VERSION:-2.2.1}" 'numpy<2' 'torchdata==0.7.1' 'pyarrow<21' > "$constraints"
    # DGL 2 does not declare pandas, pydantic and pyyaml, which its GraphBolt imports.
    python3 -m pip install --constraint "$constraints" ${WHEELS:+--find-links "$WHEELS"} \
        torch torchdata "dgl==${DGL_VERSION:-2.1.0}" numpy pandas pydantic pyyaml
}

case ${STACK:-} in
debian) debian_stack ;;
pypi) pypi_stack ;;
*)
    echo "STACK: expected debian or pypi, got '${STACK:-}'" >&2
    exit 2
    ;;
esac
