#!/usr/bin/env bash
# Uses the volumes of a cluster that cluster.sh runs with values/local.yaml, and compares the
# objects of the cluster with those of the pool. The first step that fails ends the run.
set -euo pipefail
# shellcheck source=SCRIPTDIR/lib.sh
. "$(dirname "$0")/lib.sh"

step "objects of the chart"
kubectl get csidriver,storageclass,volumesnapshotclass,volumegroupsnapshotclass,volumeattributesclass
kubectl get pods --namespace "$NAMESPACE" --output wide
kubectl get csinode "$NODE" -o json | jq -c .spec.drivers

step "capacity of the node"
until_is 1 sh -c "kubectl get csistoragecapacity --namespace $NAMESPACE --output name | wc -l"
kubectl get csistoragecapacity --namespace "$NAMESPACE" -o json |
  jq -r '.items[] | "\(.storageClassName) \(.nodeTopology.matchLabels) \(.capacity)"'

step "a claim waits for its pod; the pod writes to an XFS file system"
claim data 1Gi
expect "phase before the pod" "$(kubectl get pvc data -o jsonpath='{.status.phase}')" Pending
pod one data
wait_bound data
wait_running one
kubectl get pv -o wide
expect "size in the pool" "$(in_pool "$(volume_of data)" .size)" $((1 << 30))
expect "node of the volume" "$(kubectl get pv -o json | jq -r \
  '.items[0].spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0] | "\(.key)=\(.values[0])"')" \
  "topology.gabion.io/node=$NODE"
in_pod one 'grep " /data " /proc/mounts; echo precious > /data/file; sync'

step "growth while the pod runs"
grow data 2Gi
size_in_pod() {
  in_pod one 'df -m /data' | awk 'NR == 2 { print ($2 > 1900) }'
}
until_is 1 size_in_pod
kubectl wait pvc/data --for=jsonpath='{.status.capacity.storage}'=2Gi "$wait_for"
in_pod one 'df -h /data'

step "limits by a volume attributes class"
limit data gabion-bronze

step "snapshot"
snapshot monday data
in_pod one 'echo changed > /data/file; sync'
kubectl get volumesnapshot,volumesnapshotcontent
wait_volumes 2

step "volume from the snapshot, larger than its source, and clone"
claim restored 3Gi '{"dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "monday"}}'
claim copy 2Gi '{"dataSource": {"kind": "PersistentVolumeClaim", "name": "data"}}'
claim limited 512Mi '{"volumeAttributesClassName": "gabion-gold"}'
pod two restored copy limited
wait_running two
expect "contents of the restored volume" "$(in_pod two 'cat /restored/file')" precious
expect "contents of the clone" "$(in_pod two 'cat /copy/file')" changed
expect "size of the restored volume" "$(in_pool "$(volume_of restored)" .size)" $((3 << 30))
expect "limits of the new volume" "$(in_pool "$(volume_of limited)" '"\(.qos.iops) \(.qos.weight)"')" "null 1000"
in_pod two 'df -h /restored /copy /limited'
wait_volumes 5
"$GABION" volume list --snapshots

step "raw block device"
claim raw 64Mi '{"volumeMode": "Block", "accessModes": ["ReadWriteMany"]}'
block_pod three raw
wait_running three
in_pod three 'echo block > /written; dd if=/written of=/dev/volume conv=fsync 2>/dev/null'
expect "contents of the device" "$(in_pod three 'head -c 5 /dev/volume')" block

step "snapshots of a group"
group_snapshot tuesday
kubectl get volumesnapshot,volumegroupsnapshot
"$GABION" volume list --snapshots
kubectl delete volumegroupsnapshot tuesday
wait_volumes 6

step "the driver is stopped and started while a pod writes"
in_pod one 'for i in 1 2 3 4 5 6 7 8 9 10; do echo $i >> /data/log; sync; sleep 1; done' &
writer=$!
kubectl delete pod --namespace "$NAMESPACE" --selector app.kubernetes.io/component=node
kubectl rollout status --namespace "$NAMESPACE" daemonset/gabion-node "$wait_for"
wait "$writer"
expect "lines that the pod wrote" "$(in_pod one 'wc -l < /data/log')" 10

step "an error names the parameter"
kubectl apply -f - <<TXT
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: { name: wrong }
provisioner: csi.gabion.io
volumeBindingMode: WaitForFirstConsumer
parameters: { iops: many }
TXT
claim refused 1Gi '{"storageClassName": "wrong"}'
pod four refused
reason() {
  kubectl get events --field-selector involvedObject.name=refused,reason=ProvisioningFailed -o json |
    jq -r '[.items[].message | select(contains("iops"))] | length > 0'
}
until_is true reason
kubectl get events --field-selector involvedObject.name=refused,reason=ProvisioningFailed -o jsonpath='{.items[-1:].message}'
kubectl delete pod four
kubectl delete pvc refused
kubectl delete storageclass wrong

step "deletion"
kubectl delete pod one two three
kubectl delete pvc restored copy limited raw
wait_volumes 2
kubectl delete volumesnapshot monday
wait_volumes 1
kubectl delete pvc data
wait_volumes 0
kubectl wait pv --all --for=delete "$wait_for"
until_is 0 sh -c '"$GABION" export list --quiet | wc -l'
expect "loop devices of volumes" "$(losetup --list --noheadings --output BACK-FILE | grep -c "$TRY/state/gabion" || true)" 0

printf '\nall steps passed\n'
