{{/* The labels that distinguish the page's pod from the workload's pods, which the other objects select. */}}
{{- define "app.webSelector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}-web
app.kubernetes.io/instance: {{ include "leasehold.fullname" . | quote }}
{{- end -}}
