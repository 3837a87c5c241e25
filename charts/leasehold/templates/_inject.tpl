{{/* The pods that the injection policies apply to. */}}
{{- define "app.podsThatStart" -}}
matchConstraints:
  resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      operations: [CREATE]
      resources: [pods]
  {{- with .Values.inject.namespaceSelector }}
  namespaceSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* The item of `matchConditions` that excludes other pods. */}}
{{- define "app.thePodAsks" -}}
- name: the-pod-asks
  expression: >-
    'leasehold.dev/inject' in object.metadata.?annotations.orValue({}) ||
    'leasehold.dev/supervise' in object.metadata.?annotations.orValue({})
{{- end -}}

{{/*
The items of `variables`: the lease's name; the name of the container whose workload leasehold runs, or an empty string; and the index of this
container's volume mount of the automatic service account token, or -1. The namespace is a prefix, as everywhere
in this chart, so that workloads in two namespaces with one database do not exclude each other.
*/}}
{{- define "app.injectedVariables" -}}
- name: lease
  expression: request.namespace + '.' + object.metadata.annotations[?'leasehold.dev/inject'].orValue('')
- name: supervises
  expression: object.metadata.annotations[?'leasehold.dev/supervise'].orValue('')
- name: tokenMount
  expression: >-
    (object.spec.containers.filter(container, container.name == variables.supervises).map(container,
    container.?volumeMounts.orValue([]).map(mount, mount.name.startsWith('kube-api-access-') &&
    mount.mountPath == '{{ include "app.tokenPath" . }}').indexOf(true)) + [-1])[0]
{{- end -}}

{{- define "app.tokenPath" -}}
/var/run/secrets/kubernetes.io/serviceaccount
{{- end -}}

{{/*
The value of the injected pods' label: the name of this release, with a hash of its name and namespace. A label may be too short for both names.
*/}}
{{- define "app.injector" -}}
{{- printf "%s.%s" (include "leasehold.fullname" .) (include "leasehold.clusterName" . | sha256sum | trunc 8) -}}
{{- end -}}

{{/*
Refuses a change of the collection for injected pods. During the next update of a workload, the old pods would use the old collection, and the
new pods the new collection.
*/}}
{{- define "app.checkInjected" -}}
{{- $name := printf "%s.inject" (include "leasehold.clusterName" .) -}}
{{- $policy := lookup "admissionregistration.k8s.io/v1" "MutatingAdmissionPolicy" "" $name -}}
{{- $before := get (($policy.metadata | default dict).annotations | default dict) "leasehold.dev/injects-into" -}}
{{- $now := include "leasehold.collection" . -}}
{{- if and $before (ne $before $now) -}}
{{- fail (printf "leasehold: injected pods contend in %s, and new ones would contend in %s: during an update of their workload two would lead; scale to 0 the workloads whose pods have the label leasehold.dev/injected-by=%s, wait until these pods are gone, delete the policy (kubectl delete mutatingadmissionpolicy %s), and repeat this command, or undo the change of leasehold.config.mongodb" $before $now (include "app.injector" .) $name) -}}
{{- end -}}
{{- end -}}
