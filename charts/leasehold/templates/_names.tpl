{{- define "app.image" -}}
{{- $image := .Values.workload.image -}}
{{- $_ := required "leasehold: set workload.image.repository to the image to run" $image.repository -}}
{{- if not (or $image.tag $image.digest) -}}
{{- fail "leasehold: set workload.image.tag or workload.image.digest" -}}
{{- end -}}
{{- include "leasehold.imageName" (dict "root" . "image" $image "tag" $image.tag "key" "workload.image") -}}
{{- end -}}

{{/* Refuses an object that selects the workload's pods if there are none, because the object would silently select nothing. */}}
{{- define "app.needsDeployment" -}}
{{- if not .root.Values.deployment.enabled -}}
{{- fail (printf "leasehold: %s needs deployment.enabled: it is about the pods of the workload" .value) -}}
{{- end -}}
{{- end -}}

{{/* The `metadata` of the object that creates the workload's pods. */}}
{{- define "app.workloadMetadata" -}}
{{- $annotations := deepCopy (.Values.deployment.annotations | default dict) -}}
{{- if include "app.isJob" . -}}
{{- $annotations = merge (deepCopy (.Values.job.annotations | default dict)) $annotations -}}
{{- end -}}
{{- $annotations = merge (include "app.contendsAnnotations" . | fromYaml) $annotations -}}
{{- include "leasehold.metadata" (dict "root" . "name" (include "leasehold.fullname" .) "annotations" $annotations) -}}
{{- end -}}

{{/* The name of the Service that gives each pod of a StatefulSet a name. */}}
{{- define "app.headlessName" -}}
{{- include "app.checkServiceName" . -}}
{{- .Values.statefulSet.serviceName | default (printf "%s-headless" (include "leasehold.fullname" .)) -}}
{{- end -}}

{{- define "app.checkServiceName" -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" (include "leasehold.fullname" .)) -}}
{{- fail (printf "leasehold: a Service cannot be called %s: its name must begin with a letter and contain only lower-case letters, digits and -; set fullnameOverride" (include "leasehold.fullname" .)) -}}
{{- end -}}
{{- end -}}

{{/* The ports of a Service for the workload, from the values of `service` and the port on the nodes. */}}
{{- define "app.servicePorts" -}}
- name: {{ .service.portName | quote }}
  port: {{ .service.port }}
  targetPort: {{ .service.targetPort }}
  protocol: TCP
  {{- with .service.appProtocol }}
  appProtocol: {{ . | quote }}
  {{- end }}
  {{- with .nodePort }}
  nodePort: {{ . }}
  {{- end }}
{{- range .service.extraPorts }}
- {{- ternary . (omit . "nodePort") (hasKey $ "nodePort") | toYaml | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The strategy of updates. Values are merged, so another type than RollingUpdate may still have the default limits of a rolling update. */}}
{{- define "app.updateStrategy" -}}
type: {{ .type }}
{{- if and (eq .type "RollingUpdate") .rollingUpdate }}
rollingUpdate:
  {{- toYaml .rollingUpdate | nindent 2 }}
{{- end }}
{{- end -}}
