{{/* The labels that distinguish the page's pod from the workload's pods, which the other objects select. */}}
{{- define "app.webSelector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}-web
app.kubernetes.io/instance: {{ include "leasehold.fullname" . | quote }}
{{- end -}}

{{/* The ports of DNS in a NetworkPolicy. A policy sees the ports of the pods, not the port of the Service. */}}
{{- define "app.dnsPorts" -}}
{{- range .Values.networkPolicy.dnsPorts }}
- port: {{ . }}
  protocol: UDP
- port: {{ . }}
  protocol: TCP
{{- end }}
{{- end -}}
