{{/* The `metadata` of a monitor called `name`. */}}
{{- define "app.monitorMetadata" -}}
{{- $monitor := .root.Values.podMonitor -}}
{{- include "leasehold.metadata" (dict "root" .root "name" .name "labels" $monitor.labels "key" "podMonitor.labels" "annotations" $monitor.annotations) -}}
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

{{/* The endpoints of all leases. */}}
{{- define "app.leaseEndpoints" -}}
{{- range $port, $_ := include "leasehold.allPorts" . | fromJson }}
- port: {{ $port }}
  {{- include "app.scrape" (dict "root" $ "relabelings" list) | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The ports of a headless Service for all leases. */}}
{{- define "app.leasePorts" -}}
{{- range $name, $port := include "leasehold.allPorts" . | fromJson }}
- name: {{ $name }}
  port: {{ $port }}
  protocol: TCP
{{- end }}
{{- end -}}
