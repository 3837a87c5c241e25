{{- define "app.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "app.image" -}}
{{- $image := .Values.workload.image -}}
{{- $_ := required "leasehold: set workload.image.repository to the image to run" $image.repository -}}
{{- if not (or $image.tag $image.digest) -}}
{{- fail "leasehold: set workload.image.tag or workload.image.digest" -}}
{{- end -}}
{{- include "leasehold.imageName" (dict "image" $image "tag" $image.tag "key" "workload.image") -}}
{{- end -}}
