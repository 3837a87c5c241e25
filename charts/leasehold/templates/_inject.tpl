{{/* The pods that the policies of injection look at. */}}
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

{{/* The item of `matchConditions` that leaves other pods alone. */}}
{{- define "app.thePodAsks" -}}
- name: the-pod-asks
  expression: "'leasehold.dev/inject' in object.metadata.?annotations.orValue({})"
{{- end -}}

{{/*
The item of `variables` with the lease's name. With the namespace before it, as everywhere in this chart, so that
namespaces which share a database do not exclude each other.
*/}}
{{- define "app.injectedLease" -}}
- name: lease
  expression: request.namespace + '.' + object.metadata.annotations['leasehold.dev/inject']
{{- end -}}

{{/* The value of the label of injected pods: this release, by its name and a hash of it with the namespace, since both may be too long. */}}
{{- define "app.injector" -}}
{{- printf "%s.%s" (include "leasehold.fullname" .) (include "leasehold.clusterName" . | sha256sum | trunc 8) -}}
{{- end -}}

{{/*
Refuses another collection for pods that are injected from now on. Their workloads are of others, whose next update would have pods
with both.
*/}}
{{- define "app.checkInjected" -}}
{{- $name := printf "%s.inject" (include "leasehold.clusterName" .) -}}
{{- $policy := lookup "admissionregistration.k8s.io/v1" "MutatingAdmissionPolicy" "" $name -}}
{{- $before := get (($policy.metadata | default dict).annotations | default dict) "leasehold.dev/injects-into" -}}
{{- $now := include "leasehold.collection" . -}}
{{- if and $before (ne $before $now) -}}
{{- fail (printf "leasehold: injected pods contend in %s, and new ones would contend in %s: during an update of their workload two would lead; scale the workloads to 0 whose pods have the label leasehold.dev/injected-by=%s, wait until these pods are gone, delete the policy (kubectl delete mutatingadmissionpolicy %s), and repeat this command, or take back the change of leasehold.config.mongodb" $before $now (include "app.injector" .) $name) -}}
{{- end -}}
{{- end -}}
