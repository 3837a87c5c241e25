{{/*
With `create` and `patch` on Events, a client may write Events on any object of the namespace in the name of any reporter, and may set labels
and finalizers on other reporters' Events. The policy permits only Events on the pod that the token is bound to. The policy applies only to
requests to events.k8s.io (`Exact`), because the Role grants only that group. A workload with the same account may have a separate permission
for Events of the core group. `namespace` is a reserved word of CEL, and the type checker of older servers rejects a field with that name. The
policy therefore reads the namespace from an untyped value, and from the request.
*/}}
{{- define "leasehold.eventPolicy" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  {{- include "leasehold.metadata" (dict "root" . "name" (printf "%s.events" (include "leasehold.clusterName" .)) "cluster" true) | nindent 2 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    matchPolicy: Exact
    resourceRules:
      - apiGroups: [events.k8s.io]
        apiVersions: [v1]
        operations: [CREATE, UPDATE]
        resources: [events]
  matchConditions:
    {{- include "leasehold.aSidecarAsks" . | nindent 4 }}
  validations:
    - expression: >-
        object.?regarding.?apiVersion.orValue('') == 'v1' && object.?regarding.?kind.orValue('') == 'Pod' &&
        dyn(object).?regarding.?namespace.orValue('') == request.namespace &&
        object.?regarding.?name.orValue('') in request.userInfo.?extra[?'authentication.kubernetes.io/pod-name'].orValue([]) &&
        object.?regarding.?uid.orValue('') in request.userInfo.?extra[?'authentication.kubernetes.io/pod-uid'].orValue([]) &&
        !has(object.related)
      message: a sidecar reports only on the pod that its token is bound to
    - expression: object.?reportingController.orValue('') == 'leasehold.dev/leasehold'
      message: a sidecar reports only as leasehold.dev/leasehold
    - expression: >-
        request.operation != 'CREATE' || (object.metadata.?labels.orValue({}).size() == 0 &&
        object.metadata.?annotations.orValue({}).size() == 0 && object.metadata.?finalizers.orValue([]).size() == 0 &&
        object.metadata.?ownerReferences.orValue([]).size() == 0)
      message: an Event of a sidecar has no label, annotation, finalizer or owner
    - expression: >-
        request.operation == 'CREATE' || (object.metadata.?labels == oldObject.metadata.?labels &&
        object.metadata.?annotations == oldObject.metadata.?annotations &&
        object.metadata.?finalizers == oldObject.metadata.?finalizers &&
        object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences &&
        object.?regarding == oldObject.?regarding && object.?reportingController == oldObject.?reportingController &&
        object.?reportingInstance == oldObject.?reportingInstance && object.?eventTime == oldObject.?eventTime &&
        object.?reason == oldObject.?reason && object.?action == oldObject.?action &&
        object.?type == oldObject.?type && object.?note == oldObject.?note &&
        object.?deprecatedCount == oldObject.?deprecatedCount &&
        object.?deprecatedFirstTimestamp == oldObject.?deprecatedFirstTimestamp &&
        object.?deprecatedLastTimestamp == oldObject.?deprecatedLastTimestamp)
      message: a sidecar changes only the series of an Event
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  {{- include "leasehold.metadata" (dict "root" . "name" (printf "%s.events" (include "leasehold.clusterName" .)) "cluster" true) | nindent 2 }}
spec:
  policyName: {{ include "leasehold.clusterName" . }}.events
  {{- include "leasehold.deniesHere" . | nindent 2 }}
{{- end -}}
