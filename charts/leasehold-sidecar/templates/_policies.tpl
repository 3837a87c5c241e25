{{/*
Parts of the admission policies. A release has its own policies, or the chart leasehold-cluster has the policies of all releases: this file is
also a template of that chart.
*/}}
{{- define "leasehold.labelRequests" -}}
matchConstraints:
  resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      operations: [UPDATE]
      resources: [pods/status]
{{- end -}}

{{- define "leasehold.labelVariables" -}}
- name: labels
  expression: object.metadata.?labels.orValue({})
- name: labelsBefore
  expression: oldObject.metadata.?labels.orValue({})
- name: own
  expression: >-
    object.metadata.name in request.userInfo.?extra[?'authentication.kubernetes.io/pod-name'].orValue([]) &&
    object.metadata.uid in request.userInfo.?extra[?'authentication.kubernetes.io/pod-uid'].orValue([])
# Is the token bound to any pod?
- name: bound
  expression: request.userInfo.?extra[?'authentication.kubernetes.io/pod-uid'].orValue([]).size() > 0
{{- end -}}

{{- define "leasehold.changesNothingElse" -}}
- expression: >-
    object.metadata.?annotations.orValue({}) == oldObject.metadata.?annotations.orValue({}) &&
    object.metadata.?finalizers.orValue([]) == oldObject.metadata.?finalizers.orValue([]) &&
    object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences
  message: a sidecar changes no annotation, finalizer or owner
- expression: object.?spec == oldObject.?spec && object.?status == oldObject.?status
  message: a sidecar changes no status
{{- end -}}

{{/*
With `create` and `patch` on Events, a client may write Events on any object of the namespace in the name of any reporter, and may set labels
and finalizers on other reporters' Events. The policy permits only Events on the pod that the token is bound to. The policy applies only to
requests to events.k8s.io (`Exact`), because the Role grants only that group. A workload with the same account may have a separate permission
for Events of the core group. `namespace` is a reserved word of CEL, and the type checker of older servers rejects a field with that name. The
policy therefore reads the namespace from an untyped value, and from the request.
*/}}
{{- define "leasehold.eventRequests" -}}
matchConstraints:
  matchPolicy: Exact
  resourceRules:
    - apiGroups: [events.k8s.io]
      apiVersions: [v1]
      operations: [CREATE, UPDATE]
      resources: [events]
{{- end -}}

{{- define "leasehold.eventValidations" -}}
- expression: >-
    {{ with .unless }}{{ . }} || ({{ end }}object.?regarding.?apiVersion.orValue('') == 'v1' && object.?regarding.?kind.orValue('') == 'Pod' &&
    dyn(object).?regarding.?namespace.orValue('') == request.namespace &&
    object.?regarding.?name.orValue('') in request.userInfo.?extra[?'authentication.kubernetes.io/pod-name'].orValue([]) &&
    object.?regarding.?uid.orValue('') in request.userInfo.?extra[?'authentication.kubernetes.io/pod-uid'].orValue([]) &&
    !has(object.related){{ if .unless }}){{ end }}
  message: a sidecar reports only on the pod that its token is bound to
- expression: {{ with .unless }}{{ . }} || ({{ end }}object.?reportingController.orValue('') == 'leasehold.dev/leasehold'{{ if .unless }}){{ end }}
  message: a sidecar reports only as leasehold.dev/leasehold
- expression: >-
    {{ with .unless }}{{ . }} || ({{ end }}request.operation != 'CREATE' || (object.metadata.?labels.orValue({}).size() == 0 &&
    object.metadata.?annotations.orValue({}).size() == 0 && object.metadata.?finalizers.orValue([]).size() == 0 &&
    object.metadata.?ownerReferences.orValue([]).size() == 0){{ if .unless }}){{ end }}
  message: an Event of a sidecar has no label, annotation, finalizer or owner
- expression: >-
    {{ with .unless }}{{ . }} || ({{ end }}request.operation == 'CREATE' || (object.metadata.?labels == oldObject.metadata.?labels &&
    object.metadata.?annotations == oldObject.metadata.?annotations &&
    object.metadata.?finalizers == oldObject.metadata.?finalizers &&
    object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences &&
    object.?regarding == oldObject.?regarding && object.?reportingController == oldObject.?reportingController &&
    object.?reportingInstance == oldObject.?reportingInstance && object.?eventTime == oldObject.?eventTime &&
    object.?reason == oldObject.?reason && object.?action == oldObject.?action &&
    object.?type == oldObject.?type && object.?note == oldObject.?note &&
    object.?deprecatedCount == oldObject.?deprecatedCount &&
    object.?deprecatedFirstTimestamp == oldObject.?deprecatedFirstTimestamp &&
    object.?deprecatedLastTimestamp == oldObject.?deprecatedLastTimestamp){{ if .unless }}){{ end }}
  message: a sidecar changes only the series of an Event
{{- end -}}
