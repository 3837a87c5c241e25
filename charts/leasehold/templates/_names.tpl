{{- define "app.image" -}}
{{- $image := .Values.workload.image -}}
{{- $_ := required "leasehold: set workload.image.repository to the image to run" $image.repository -}}
{{- if not (or $image.tag $image.digest) -}}
{{- fail "leasehold: set workload.image.tag or workload.image.digest" -}}
{{- end -}}
{{- include "leasehold.imageName" (dict "image" $image "tag" $image.tag "key" "workload.image") -}}
{{- end -}}

{{/* For objects about the Deployment's pods. Without these pods they would silently select nothing. */}}
{{- define "app.needsDeployment" -}}
{{- if not .root.Values.deployment.enabled -}}
{{- fail (printf "leasehold: %s needs deployment.enabled: it is about the pods of the Deployment" .value) -}}
{{- end -}}
{{- end -}}
