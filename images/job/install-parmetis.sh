#!/bin/sh
# Install ParMETIS from Debian's non-free section, only for a builder who accepts its licence: research
# of non-profit institutions and the US government, no redistribution. An image with it must not be
# published. ACCEPT_PARMETIS_LICENSE=yes says so.
set -eu

case ${ACCEPT_PARMETIS_LICENSE:-} in
'') exit 0 ;;
yes) ;;
*)
    echo "ACCEPT_PARMETIS_LICENSE: expected yes or nothing, got '$ACCEPT_PARMETIS_LICENSE'" >&2
    exit 2
    ;;
esac

# The image's own mirror, with one more section, for this installation only.
sources=/etc/apt/sources.list.d/debian.sources
if [ -f "$sources" ]; then
    cp "$sources" /tmp/sources
    sed -i 's/^Components:.*/& non-free/' "$sources"
else
    sources=/etc/apt/sources.list
    cp "$sources" /tmp/sources
    sed -i '/^deb /s/$/ non-free/' "$sources"
fi
apt-get update
apt-get install --no-install-recommends --yes libparmetis4.0
mv /tmp/sources "$sources"
apt-get clean
rm -rf /var/lib/apt/lists/*
