{{- define "gabion-csi.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/name: gabion-csi
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "gabion-csi.base" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "gabion-csi.node" -}}
{{ include "gabion-csi.base" . }}-node
{{- end }}

{{- define "gabion-csi.controller" -}}
{{ include "gabion-csi.base" . }}-controller
{{- end }}

{{- define "gabion-csi.metrics" -}}
{{ include "gabion-csi.base" . }}-metrics
{{- end }}

{{- define "gabion-csi.metadata" -}}
{{ include "gabion-csi.base" . }}-snapshot-metadata
{{- end }}

{{- /* True, or empty: each node has a daemon. */ -}}
{{- define "gabion-csi.isLocal" -}}
{{- if eq .Values.attach "local" }}true{{ end }}
{{- end }}

{{- /* True, or empty: several nodes with a daemon each. */ -}}
{{- define "gabion-csi.isDistributed" -}}
{{- if and (include "gabion-csi.isLocal" .) (not .Values.singleNode) }}true{{ end }}
{{- end }}

{{- /* Name of the workload and service account with the sidecars. */ -}}
{{- define "gabion-csi.sidecarHost" -}}
{{- if include "gabion-csi.isLocal" . }}{{ include "gabion-csi.node" . }}{{ else }}{{ include "gabion-csi.controller" . }}{{ end }}
{{- end }}

{{- define "gabion-csi.image" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
command: [gabion]
{{- end }}

{{- /* Variables of the driver: the daemon of the node, or the storage server. */ -}}
{{- define "gabion-csi.daemonVariables" -}}
- name: GABION_LOG_LEVEL
  value: {{ .Values.logLevel | quote }}
{{- if include "gabion-csi.isLocal" . }}
- name: GABION_SOCKET
  value: {{ .Values.runDir }}/gabion.sock
{{- else }}
- name: GABION_SERVER
  value: {{ required "server.url: attach nvme-tcp needs the URL of the storage server" .Values.server.url | quote }}
- name: GABION_TOKEN_FILE
  value: /server/token
{{- with .Values.server.fingerprint }}
- name: GABION_FINGERPRINT
  value: {{ . | quote }}
{{- end }}
{{- if .Values.server.caCertificate }}
- name: GABION_CA_FILE
  value: /server/ca.crt
{{- end }}
{{- end }}
{{- end }}

{{- /* Name of the Secret with the token of the storage server. */ -}}
{{- define "gabion-csi.serverSecret" -}}
{{- if .Values.server.token }}{{ include "gabion-csi.base" . }}-server
{{- else }}{{ required "server: attach nvme-tcp needs 'tokenSecret' or 'token'" .Values.server.tokenSecret }}{{ end }}
{{- end }}

{{- /* The volume with the token and the certificate of the storage server. */ -}}
{{- define "gabion-csi.serverVolume" -}}
- name: server
  projected:
    defaultMode: 0400
    sources:
      - secret:
          name: {{ include "gabion-csi.serverSecret" . }}
          items:
            - key: token
              path: token
      {{- if .Values.server.caCertificate }}
      - configMap:
          name: {{ include "gabion-csi.base" . }}-server
          items:
            - key: ca.crt
              path: ca.crt
      {{- end }}
{{- end }}

{{- define "gabion-csi.nodeName" -}}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{- end }}
