{{- /* (INDENTATION, VALUE): a list or map as YAML; nothing where it is empty. */ -}}
{{- define "convtune.more" -}}
{{- with index . 1 }}{{ toYaml . | nindent (index $ 0) }}{{ end }}
{{- end }}

{{- /* (INDENTATION, NAME, VALUE): the same as the field NAME. */ -}}
{{- define "convtune.field" -}}
{{- with index . 2 }}{{ printf "%s:%s" (index $ 1) (toYaml . | nindent 2) | nindent (index $ 0) }}{{ end }}
{{- end }}

{{- define "convtune.fullname" -}}
{{ .Values.fullnameOverride | default .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* A digest says which image exactly; a tag may move. */ -}}
{{- define "convtune.image" -}}
image: {{ .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- define "convtune.labels" -}}
app.kubernetes.io/name: convtune
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "convtune.selector" -}}
app.kubernetes.io/name: convtune
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* metadata of the workload: {name, labels, annotations}. */ -}}
{{- define "convtune.metadata" -}}
name: {{ include "convtune.fullname" . }}
labels:
  {{- include "convtune.labels" . | nindent 2 }}
{{- include "convtune.field" (list 0 "annotations" .Values.annotations) }}
{{- end }}

{{- /* metadata of its pods. Another list of problems makes new serving pods, which tune what is new. */ -}}
{{- define "convtune.podMetadata" -}}
labels:
  {{- include "convtune.labels" . | nindent 2 }}
  {{- include "convtune.more" (list 2 .Values.podLabels) }}
{{- $annotations := deepCopy .Values.podAnnotations }}
{{- if and (eq .Values.mode "serving") (not .Values.snapshot.address) }}
{{- $_ := set $annotations "checksum/problems" (sha256sum .Values.problems) }}
{{- end }}
{{- include "convtune.field" (list 0 "annotations" $annotations) }}
{{- end }}

{{- /* Every pod has the restricted profile, and runs as the chart's user. */ -}}
{{- define "convtune.pod" -}}
automountServiceAccountToken: false
{{- /* The daemonset's own values hold where the common ones are empty. */}}
{{- $mode := dict }}
{{- if eq .Values.mode "daemonset" }}
{{- $mode = .Values.daemonset }}
{{- end }}
{{- $class := .Values.runtimeClassName }}
{{- if eq (toString $mode.gpus) "all" }}
{{- $class = $class | default $mode.runtimeClassName }}
{{- end }}
{{- include "convtune.field" (list 0 "imagePullSecrets" .Values.imagePullSecrets) }}
{{- range $key := list "serviceAccountName" "priorityClassName" "terminationGracePeriodSeconds" }}
{{- with index $.Values $key }}
{{ $key }}: {{ . }}
{{- end }}
{{- end }}
{{- with $class }}
runtimeClassName: {{ . }}
{{- end }}
{{- include "convtune.field" (list 0 "nodeSelector" (.Values.nodeSelector | default $mode.nodeSelector)) }}
{{- range $key := list "affinity" "topologySpreadConstraints" "tolerations" }}
{{- include "convtune.field" (list 0 $key (index $.Values $key)) }}
{{- end }}
{{- if eq .Values.mode "job" }}
restartPolicy: Never
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .Values.user }}
  runAsGroup: {{ .Values.user }}
  fsGroup: {{ .Values.user }}
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* The restricted profile of a container. */ -}}
{{- define "convtune.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Where a serving container sees the snapshot. */ -}}
{{- define "convtune.snapshotPath" -}}
/var/lib/convtune/snapshot
{{- end }}

{{- /* Tunes what is missing in this pod's GPU, and ends. */ -}}
{{- define "convtune.once" -}}
- name: convtune
  {{- include "convtune.image" . | nindent 2 }}
  # Also where the image is the server's own, with the wheel.
  command: [convtuned]
  args:
    - --once
    - --file=/etc/convtune/problems.txt
    - --state-dir=/var/lib/convtune/db
    - --time-budget={{ .Values.timeBudget }}
    {{- if .Values.base }}
    - --base={{ .Values.base }}
    {{- end }}
    {{- include "convtune.more" (list 4 .Values.extraArgs) }}
  env:
    {{- include "convtune.nodeName" . | nindent 4 }}
    {{- include "convtune.more" (list 4 .Values.extraEnv) }}
  resources:
    requests:
      {{- toYaml .Values.resources.requests | nindent 6 }}
    limits:
      {{- toYaml .Values.resources.limits | nindent 6 }}
      {{ .Values.gpu.resource }}: {{ .Values.gpu.count }}
  securityContext:
    {{- include "convtune.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - {name: state, mountPath: /var/lib/convtune}
    - {name: problems, mountPath: /etc/convtune, readOnly: true}
    - {name: tmp, mountPath: /tmp}
    {{- include "convtune.more" (list 4 .Values.extraVolumeMounts) }}
{{- end }}

{{- /* The node is what stays when a pod is replaced: results and reports name it. */ -}}
{{- define "convtune.nodeName" -}}
- name: CONVTUNE_NODE
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- end }}

{{- /* A container that brings the snapshot of the daemon at snapshot.address; called with its name and command. */ -}}
{{- define "convtune.fetch" -}}
- name: {{ .name }}
  {{- include "convtune.image" .root | nindent 2 }}
  command:
    {{- toYaml .command | nindent 4 }}
  env:
    - {name: CONVTUNE_ADDRESS, value: {{ .root.Values.snapshot.address | quote }}}
    - {name: CONVTUNE_TLS_CA, value: /etc/convtune-tls/ca.crt}
    - {name: CONVTUNE_TLS_CERT, value: /etc/convtune-tls/tls.crt}
    - {name: CONVTUNE_TLS_KEY, value: /etc/convtune-tls/tls.key}
  resources:
    {{- toYaml .root.Values.snapshot.resources | nindent 4 }}
  securityContext:
    {{- include "convtune.containerSecurity" .root | nindent 4 }}
  volumeMounts:
    - {name: state, mountPath: /var/lib/convtune}
    - {name: tls, mountPath: /etc/convtune-tls, readOnly: true}
{{- end }}

{{- define "convtune.volumes" -}}
- name: state
  {{- if .Values.state.claimName }}
  persistentVolumeClaim: {claimName: {{ .Values.state.claimName }}}
  {{- else }}
  emptyDir: {sizeLimit: {{ .Values.state.sizeLimit }}}
  {{- end }}
{{- if and (eq .Values.mode "serving") .Values.snapshot.address }}
- name: tls
  secret: {secretName: {{ .Values.snapshot.tlsSecretName }}, defaultMode: 0440}
{{- else }}
- name: problems
  configMap: {name: {{ include "convtune.fullname" . }}-problems}
{{- end }}
- name: tmp
  emptyDir: {}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
