{{- define "app.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "app.image" -}}
{{- $image := .Values.workload.image -}}
{{- $repository := required "leasehold: set workload.image.repository to the image to run" $image.repository -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (required "leasehold: set workload.image.tag or workload.image.digest" $image.tag) -}}
{{- end -}}
{{- end -}}
