#!/usr/bin/env bash
# Writes an archive of a container image from a directory, for 'ctr images import'.
#
#   image.sh NAME:TAG DIRECTORY ARCHIVE COMMAND...
set -euo pipefail
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
tar --create --owner=0 --group=0 --numeric-owner --directory="$2" --file="$work/layer.tar" .
digest=$(sha256sum "$work/layer.tar" | cut -d ' ' -f 1)
jq -n --arg digest "sha256:$digest" --args '{architecture: "amd64", os: "linux",
  config: {Env: ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
  Entrypoint: $ARGS.positional},
  rootfs: {type: "layers", diff_ids: [$digest]}}' "${@:4}" >"$work/config.json"
jq -n --arg name "$1" '[{Config: "config.json", RepoTags: [$name], Layers: ["layer.tar"]}]' \
  >"$work/manifest.json"
tar --create --directory="$work" --file="$3" manifest.json config.json layer.tar
