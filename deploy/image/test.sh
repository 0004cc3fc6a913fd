#!/bin/sh
# Runs in a container of the image: the daemon serves a pool, a remote client with a token reads it,
# and a restart keeps it.
set -eu
. /daemon.sh
gabion version
for program in mkfs.ext4 mkfs.xfs mount smartctl; do command -v "$program" >/dev/null; done
start --io threads --api-listen 127.0.0.1:9188
gabion pool create fast --level 5 --files /var/tmp/fast --file-size 64M --count 4
gabion volume create fast/vm01 --size 1G
gabion export create fast/vm01 --nbd
(umask 077; gabion token create reader --role viewer >/tmp/token)
stop
start --io threads --api-listen 127.0.0.1:9188
repeat gabion volume list fast
gabion volume list fast -q --server https://localhost:9188 --token-file /tmp/token \
  --ca-file /var/lib/gabion/certificate.pem | grep -x fast/vm01
gabion export list
stop
gabion csi --help >/dev/null
echo "the image is sound"
