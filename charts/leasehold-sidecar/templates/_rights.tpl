{{- define "leasehold.serviceAccount" -}}
{{- if .Values.leasehold.serviceAccount.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "leasehold.metadata" (dict "root" . "name" (include "leasehold.serviceAccountName" .) "annotations" .Values.leasehold.serviceAccount.annotations) | nindent 2 }}
automountServiceAccountToken: false
{{- end -}}
{{- end -}}

{{/*
The Role, with exactly the verbs that the daemon uses and the user's additional rules, and its binding. With `rights: cluster`, a binding of the
ClusterRole with these verbs, and a Role only for the additional rules.
*/}}
{{- define "leasehold.rbac" -}}
{{- include "leasehold.rbacOf" (dict "root" . "labelled" (include "leasehold.labelled" .)) -}}
{{- end -}}

{{- define "leasehold.rbacOf" -}}
{{- $labelled := .labelled -}}
{{- with .root -}}
{{- $extra := .Values.leasehold.rbac.extraRules -}}
{{- if and $extra (not .Values.leasehold.rbac.create) -}}
{{- fail "leasehold: leasehold.rbac.extraRules: leasehold.rbac.create is false, so the chart creates no Role: leave the rules out, and let the administrator put them into the Role" -}}
{{- end -}}
{{- $cluster := and $labelled (include "leasehold.clusterRights" .) -}}
{{- if .Values.leasehold.rbac.create -}}
{{- if $cluster -}}
{{- $role := "leasehold-label" -}}
{{- if .Values.leasehold.kubernetes.demoteOthers -}}
{{- $role = printf "%s-demote" $role -}}
{{- end -}}
{{- if .Values.leasehold.kubernetes.events -}}
{{- $role = printf "%s-events" $role -}}
{{- end }}
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- /* A binding cannot be changed to another role, so its name contains the name of the role. */}}
  {{- include "leasehold.metadata" (dict "root" . "name" (printf "%s.%s" (include "leasehold.fullname" .) $role)) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $role }}
{{ include "leasehold.boundAccount" . }}
---
{{ end -}}
{{- if or (and $labelled (not $cluster)) $extra -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- include "leasehold.metadata" (dict "root" . "name" (include "leasehold.name" .)) | nindent 2 }}
rules:
  {{- if and $labelled (not $cluster) }}
  - apiGroups: [""]
    resources: [pods/status]
    verbs: [patch]
  {{- if .Values.leasehold.kubernetes.demoteOthers }}
  - apiGroups: [""]
    resources: [pods]
    verbs: [list]
  {{- end }}
  {{- if .Values.leasehold.kubernetes.events }}
  - apiGroups: [events.k8s.io]
    resources: [events]
    verbs: [create, patch]
  {{- end }}
  {{- end }}
  {{- with $extra }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "leasehold.metadata" (dict "root" . "name" (include "leasehold.name" .)) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ include "leasehold.name" . }}
{{ include "leasehold.boundAccount" . }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "leasehold.boundAccount" -}}
subjects:
  - kind: ServiceAccount
    name: {{ include "leasehold.serviceAccountName" . | quote }}
    namespace: {{ .Release.Namespace | quote }}
{{- end -}}

{{/*
With `patch pods/status` alone, a client may change the address, the readiness and the annotations of every pod in the namespace. The policy
permits only a change of one label, on the pod that the token is bound to.
*/}}
{{- define "leasehold.policy" -}}
{{- if and .Values.leasehold.policy.create .Values.leasehold.kubernetes.enabled (not (include "leasehold.clusterRights" .)) -}}
{{- $labels := include "leasehold.allLabels" . | fromJsonArray -}}
{{- $label := first $labels -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  {{- include "leasehold.metadata" (dict "root" . "name" (include "leasehold.clusterName" .) "cluster" true) | nindent 2 }}
spec:
  failurePolicy: Fail
  {{- include "leasehold.labelRequests" . | nindent 2 }}
  matchConditions:
    {{- include "leasehold.aSidecarAsks" . | nindent 4 }}
  variables:
    {{- if eq (len $labels) 1 }}
    - name: label
      expression: {{ printf "'%s'" $label | quote }}
    {{- else }}
    - name: ours
      expression: {{ printf "['%s']" (join "', '" $labels) | quote }}
    {{- end }}
    {{- include "leasehold.labelVariables" . | nindent 4 }}
  validations:
    {{- if ne (len $labels) 1 }}
    {{- include "leasehold.severalLabels" . | nindent 4 }}
    {{- else }}
    {{- if .Values.leasehold.kubernetes.demoteOthers }}
    - expression: >-
        variables.own || (variables.bound && variables.labelsBefore[?variables.label] == optional.of('leader') &&
        variables.labels[?variables.label] == optional.of('follower'))
      message: a sidecar changes only a label from leader to follower on other pods
    {{- else }}
    - expression: variables.own
      message: a sidecar changes only the pod that its token is bound to
    {{- end }}
    - expression: variables.labels[?variables.label].orValue('') in ['leader', 'follower']
      message: {{ printf "the label %s is leader or follower; %s" $label (include "leasehold.ownAccount" .) | quote }}
    - expression: >-
        variables.labels.all(key, key == variables.label ||
        variables.labelsBefore[?key] == optional.of(variables.labels[key])) &&
        variables.labelsBefore.all(key, key in variables.labels)
      message: {{ printf "a sidecar changes no label but %s; %s" $label (include "leasehold.ownAccount" .) | quote }}
    {{- end }}
    {{- include "leasehold.changesNothingElse" . | nindent 4 }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  {{- include "leasehold.metadata" (dict "root" . "name" (include "leasehold.clusterName" .) "cluster" true) | nindent 2 }}
spec:
  policyName: {{ include "leasehold.clusterName" . }}
  {{- include "leasehold.deniesHere" . | nindent 2 }}
{{- if .Values.leasehold.kubernetes.events }}
---
{{ include "leasehold.eventPolicy" . }}
{{- end }}
{{- end -}}
{{- end -}}

{{/*
The validations of labels if a pod has several leases. The sidecars of the pod share one token, so each sidecar may set the labels of all
leases.
*/}}
{{- define "leasehold.severalLabels" -}}
{{- $labels := include "leasehold.allLabels" . | fromJsonArray | join ", " -}}
{{- if .Values.leasehold.kubernetes.demoteOthers }}
- expression: >-
    variables.own || (variables.bound && variables.ours.exists(key, variables.labelsBefore[?key] == optional.of('leader') &&
    variables.labels[?key] == optional.of('follower')) &&
    variables.ours.all(key, variables.labels[?key] == variables.labelsBefore[?key] ||
    (variables.labelsBefore[?key] == optional.of('leader') && variables.labels[?key] == optional.of('follower'))))
  message: a sidecar changes only a label from leader to follower on other pods
{{- else }}
- expression: variables.own
  message: a sidecar changes only the pod that its token is bound to
{{- end }}
- expression: >-
    variables.ours.all(key, variables.labels[?key].orValue('follower') in ['leader', 'follower'])
  message: {{ printf "each of the labels %s is leader or follower; %s" $labels (include "leasehold.ownAccount" .) | quote }}
- expression: >-
    variables.labels.all(key, key in variables.ours ||
    variables.labelsBefore[?key] == optional.of(variables.labels[key])) &&
    variables.labelsBefore.all(key, key in variables.labels)
  message: {{ printf "a sidecar changes no label but %s; %s" $labels (include "leasehold.ownAccount" .) | quote }}
{{- end -}}

{{/* The part of a message for a sidecar of another release that shares the account, because the policy also restricts that sidecar. */}}
{{- define "leasehold.ownAccount" -}}
{{- printf "the account %s belongs to the release %s: give another release an account of its own (leasehold.serviceAccount)" (include "leasehold.serviceAccountName" .) (include "leasehold.fullname" .) -}}
{{- end -}}

{{/* The item of `matchConditions` that exempts all users except the sidecars. */}}
{{- define "leasehold.aSidecarAsks" -}}
- name: a-sidecar-asks
  expression: >-
    request.userInfo.username == "system:serviceaccount:{{ .Release.Namespace }}:{{ include "leasehold.serviceAccountName" . }}"
{{- end -}}

{{/* The fields of a binding that refuses violations in the release's namespace. */}}
{{- define "leasehold.deniesHere" -}}
validationActions: [Deny]
matchResources:
  namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{ .Release.Namespace }}
{{- end -}}

{{- define "leasehold.eventPolicy" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  {{- include "leasehold.metadata" (dict "root" . "name" (printf "%s.events" (include "leasehold.clusterName" .)) "cluster" true) | nindent 2 }}
spec:
  failurePolicy: Fail
  {{- include "leasehold.eventRequests" . | nindent 2 }}
  matchConditions:
    {{- include "leasehold.aSidecarAsks" . | nindent 4 }}
  validations:
    {{- include "leasehold.eventValidations" . | nindent 4 }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  {{- include "leasehold.metadata" (dict "root" . "name" (printf "%s.events" (include "leasehold.clusterName" .)) "cluster" true) | nindent 2 }}
spec:
  policyName: {{ include "leasehold.clusterName" . }}.events
  {{- include "leasehold.deniesHere" . | nindent 2 }}
{{- end -}}
