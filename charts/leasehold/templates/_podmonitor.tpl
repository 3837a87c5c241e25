{{/* Labels and annotations of a PodMonitor. */}}
{{- define "app.podMonitorMetadata" -}}
labels:
  {{- include "leasehold.labelsWith" (dict "root" . "more" .Values.podMonitor.labels "key" "podMonitor.labels") | nindent 2 }}
{{- with .Values.podMonitor.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The fields of an endpoint after its port; the chart's own `relabelings` precede the user's relabelings. */}}
{{- define "app.scrape" -}}
{{- $monitor := .root.Values.podMonitor -}}
path: /metrics
interval: {{ $monitor.interval }}
{{- with $monitor.scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with concat .relabelings ($monitor.relabelings | default list) }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $monitor.metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
