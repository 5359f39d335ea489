{{- define "convtune.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
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

{{- /* What the restricted profile asks of a pod. */ -}}
{{- define "convtune.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.user }}
runAsGroup: {{ .Values.user }}
fsGroup: {{ .Values.user }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* Where pods go, with the values of the mode where the common ones are empty. */ -}}
{{- define "convtune.placement" -}}
{{- $mode := dict }}
{{- if eq .Values.mode "daemonset" }}
{{- $mode = .Values.daemonset }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.runtimeClassName | default $mode.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector | default $mode.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* And of a container. */ -}}
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
  image: {{ include "convtune.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args:
    - --once
    - --file=/etc/convtune/problems.txt
    - --state-dir=/var/lib/convtune/db
    - --time-budget={{ .Values.timeBudget }}
    {{- if .Values.base }}
    - --base={{ .Values.base }}
    {{- end }}
    {{- with .Values.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.extraEnv }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
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
    {{- with .Values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{- define "convtune.volumes" -}}
- name: state
  {{- if .Values.state.claimName }}
  persistentVolumeClaim: {claimName: {{ .Values.state.claimName }}}
  {{- else }}
  emptyDir: {sizeLimit: {{ .Values.state.sizeLimit }}}
  {{- end }}
- name: problems
  configMap: {name: {{ .Release.Name }}-problems}
- name: tmp
  emptyDir: {}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
