#!/usr/bin/env bash
# Uses the volumes of a cluster that cluster.sh runs with values/network.yaml, up to the node: the
# kernel of this machine need not have an NVMe/TCP initiator.
set -euo pipefail
# shellcheck source=SCRIPTDIR/lib.sh
. "$(dirname "$0")/lib.sh"

step "objects of the chart"
kubectl get csidriver,storageclass,volumesnapshotclass,volumegroupsnapshotclass,volumeattributesclass
kubectl get pods --namespace "$NAMESPACE" --output wide

step "a claim is bound without a pod"
claim data 1Gi
wait_bound data
expect "size in the pool" "$(in_pool "$(volume_of data)" .size)" $((1 << 30))

step "the attacher attaches the volume to the node of its pod"
pod one data
until_is 1 count_attached
kubectl get volumeattachment -o json | jq -r '.items[] | "\(.spec.nodeName) \(.status.attached) \(.status.attachmentMetadata)"'
"$GABION" export list

step "growth, limits, snapshot, group of snapshots"
grow data 2Gi
limit data gabion-bronze
snapshot monday data
claim restored 2Gi '{"dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "monday"}}'
wait_bound restored
group_snapshot tuesday
kubectl get volumesnapshot,volumegroupsnapshot

step "deletion"
kubectl delete pod one
until_is 0 count_attached
kubectl delete volumegroupsnapshot tuesday
kubectl delete pvc restored
kubectl delete volumesnapshot --all
kubectl delete pvc data
wait_volumes 0
printf '\nall steps passed\n'
