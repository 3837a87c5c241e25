{{/* The workload's pod template, for every kind: `metadata` and `spec`. */}}
{{- define "app.podTemplate" -}}
{{- $supervised := include "app.supervised" . -}}
{{- $job := include "app.isJob" . -}}
{{- $deployment := .Values.deployment -}}
metadata:
  labels:
    {{- include "leasehold.selector" . | nindent 4 }}
    {{- include "leasehold.contends" . | nindent 4 }}
    {{- with merge (deepCopy ($deployment.podLabels | default dict)) (.Values.commonLabels | default dict) }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    {{- merge (deepCopy ($deployment.podAnnotations | default dict)) (dict "kubectl.kubernetes.io/default-container" "workload") | toYaml | nindent 4 }}
spec:
  {{- if $job }}
  restartPolicy: {{ .Values.job.restartPolicy }}
  {{- end }}
  {{- include "leasehold.pod" . | nindent 2 }}
  {{- $given := $deployment.terminationGracePeriodSeconds }}
  {{- if $supervised }}
  terminationGracePeriodSeconds: {{ include "leasehold.supervisorGracePeriod" (dict "root" . "given" $given "key" "deployment.terminationGracePeriodSeconds") }}
  {{- else }}
  terminationGracePeriodSeconds: {{ $given | default 30 }}
  {{- end }}
  securityContext:
    {{- toYaml $deployment.podSecurityContext | nindent 4 }}
  {{- with include "leasehold.imagePullSecrets" . }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- range $field := list "priorityClassName" "runtimeClassName" "schedulerName" "dnsPolicy" }}
  {{- with get $deployment $field }}
  {{ $field }}: {{ . | quote }}
  {{- end }}
  {{- end }}
  {{- range $field := list "dnsConfig" "hostAliases" "readinessGates" "nodeSelector" "tolerations" "affinity" }}
  {{- with get $deployment $field }}
  {{ $field }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- /* The pods of a Job are not replicas, and the pods of a DaemonSet are on different nodes, so they are not spread. */}}
  {{- if and $deployment.topologySpreadConstraints (include "app.isReplicated" .) }}
  {{- /* Each revision is spread separately, because old pods disappear during an update. */}}
  {{- $revision := ternary "controller-revision-hash" "pod-template-hash" (eq .Values.workload.kind "StatefulSet") }}
  {{- $ours := dict "labelSelector" (dict "matchLabels" (include "leasehold.selector" . | fromYaml)) "matchLabelKeys" (list $revision) }}
  {{- $constraints := list }}
  {{- range $deployment.topologySpreadConstraints }}
  {{- $constraints = append $constraints (merge (deepCopy .) (ternary dict $ours (hasKey . "labelSelector"))) }}
  {{- end }}
  topologySpreadConstraints:
    {{- toYaml $constraints | nindent 4 }}
  {{- end }}
  initContainers:
    {{- /* These containers run before leasehold, so that a replica does not lead while they still run. */}}
    {{- with $deployment.extraInitContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- include (include "app.part" (dict "root" . "part" "initContainers")) . | nindent 4 }}
  containers:
    - name: workload
      image: {{ include "app.image" . | quote }}
      imagePullPolicy: {{ .Values.workload.image.pullPolicy }}
      {{- if $supervised }}
      command:
        {{- include "leasehold.supervisorCommand" . | nindent 8 }}
      args:
        {{- include (include "app.part" (dict "root" . "part" "args")) . | nindent 8 }}
        {{- concat .Values.workload.command (.Values.workload.args | default list) | toYaml | nindent 8 }}
      {{- else }}
      {{- with .Values.workload.command }}
      command:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.workload.args }}
      args:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
      env:
        {{- include (include "app.part" (dict "root" . "part" "env")) . | nindent 8 }}
        {{- with .Values.workload.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .Values.workload.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if eq (include "app.form" .) "supervisor" }}
      ports:
        {{- include "leasehold.port" . | nindent 8 }}
        {{- with .Values.workload.ports }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- include "leasehold.probes" . | nindent 6 }}
      {{- else }}
      {{- range $field := list "ports" "startupProbe" "livenessProbe" "readinessProbe" "lifecycle" }}
      {{- with get $.Values.workload $field }}
      {{ $field }}:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
      {{- end }}
      {{- with .Values.workload.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- toYaml .Values.workload.securityContext | nindent 8 }}
      volumeMounts:
        {{- include (include "app.part" (dict "root" . "part" "volumeMounts")) . | nindent 8 }}
        {{- with .Values.workload.volumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with $deployment.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include (include "app.part" (dict "root" . "part" "volumes")) . | nindent 4 }}
    {{- with .Values.workload.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
