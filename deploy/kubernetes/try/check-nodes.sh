#!/usr/bin/env bash
# Uses the volumes of a cluster that cluster.sh runs with values/nodes.yaml: the sidecars of a node
# handle the objects of the node only, and the kubelet grows volumes.
set -euo pipefail
# shellcheck source=SCRIPTDIR/lib.sh
. "$(dirname "$0")/lib.sh"

step "a claim with its pod"
claim data 1Gi
pod one data
wait_running one
in_pod one 'echo precious > /data/file; sync'

step "the kubelet grows the volume"
kubectl patch pvc data --patch '{"spec": {"resources": {"requests": {"storage": "2Gi"}}}}'
kubectl wait pvc/data --for=jsonpath='{.status.capacity.storage}'=2Gi "$wait_for" || fail "data does not grow"
expect "size in the pool" "$(in_pool "$(volume_of data)" .size)" $((2 << 30))
in_pod one 'df -h /data'

step "snapshot by the sidecar of the node, and a volume from it"
snapshot monday data
kubectl get volumesnapshotcontent -o json | jq -r '.items[].metadata.labels'
claim restored 2Gi '{"dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "monday"}}'
pod two restored
wait_running two
expect "contents of the restored volume" "$(in_pod two 'cat /restored/file')" precious

step "deletion"
kubectl delete pod one two
kubectl delete pvc restored
kubectl delete volumesnapshot monday
kubectl delete pvc data
wait_volumes 0
printf '\nall steps passed\n'
