{{- /* The sidecars that create volumes and snapshots. On each node, or once in the cluster. */ -}}
{{- define "gabion-csi.sidecars" -}}
{{- if and .Values.sidecars.snapshotter.groups (include "gabion-csi.isDistributed" .) }}
{{- fail "sidecars.snapshotter.groups: snapshots of groups need attach nvme-tcp, or singleNode, because the snapshot controller does not assign them to nodes" }}
{{- end }}
- name: provisioner
  image: {{ .Values.sidecars.provisioner.image }}
  args:
    - --csi-address=/csi/csi.sock
    {{- if include "gabion-csi.isLocal" . }}
    - --node-deployment
    - --strict-topology
    - --enable-capacity
    - --capacity-ownerref-level=1
    {{- else }}
    - --leader-election
    {{- end }}
    - --extra-create-metadata
    - --timeout=60s
  env:
    {{- include "gabion-csi.nodeName" . | nindent 4 }}
    - name: NAMESPACE
      valueFrom:
        fieldRef:
          fieldPath: metadata.namespace
    - name: POD_NAME
      valueFrom:
        fieldRef:
          fieldPath: metadata.name
  volumeMounts:
    - name: plugin
      mountPath: /csi
{{- if not (include "gabion-csi.isLocal" .) }}
- name: attacher
  image: {{ .Values.sidecars.attacher.image }}
  args:
    - --csi-address=/csi/csi.sock
    - --leader-election
    - --timeout=60s
  volumeMounts:
    - name: plugin
      mountPath: /csi
{{- end }}
{{- if .Values.sidecars.snapshotter.enabled }}
- name: snapshotter
  image: {{ .Values.sidecars.snapshotter.image }}
  args:
    - --csi-address=/csi/csi.sock
    {{- if include "gabion-csi.isDistributed" . }}
    - --node-deployment
    {{- else }}
    - --leader-election
    {{- end }}
    - --feature-gates=CSIVolumeGroupSnapshot={{ .Values.sidecars.snapshotter.groups }}
    - --timeout=60s
  env:
    {{- include "gabion-csi.nodeName" . | nindent 4 }}
  volumeMounts:
    - name: plugin
      mountPath: /csi
{{- end }}
- name: resizer
  image: {{ .Values.sidecars.resizer.image }}
  args:
    - --csi-address=/csi/csi.sock
    - --leader-election
    - --timeout=60s
  volumeMounts:
    - name: plugin
      mountPath: /csi
{{- if .Values.sidecars.snapshotMetadata.enabled }}
- name: snapshot-metadata
  image: {{ .Values.sidecars.snapshotMetadata.image }}
  args:
    - --csi-address=/csi/csi.sock
    - --port={{ .Values.sidecars.snapshotMetadata.port }}
    - --tls-cert=/certificate/tls.crt
    - --tls-key=/certificate/tls.key
  volumeMounts:
    - name: plugin
      mountPath: /csi
    - name: certificate
      mountPath: /certificate
      readOnly: true
{{- end }}
{{- end }}

{{- define "gabion-csi.sidecarVolumes" -}}
{{- if .Values.sidecars.snapshotMetadata.enabled }}
- name: certificate
  secret:
    secretName: {{ required "sidecars.snapshotMetadata.tlsSecret: is required" .Values.sidecars.snapshotMetadata.tlsSecret }}
{{- end }}
{{- end }}
