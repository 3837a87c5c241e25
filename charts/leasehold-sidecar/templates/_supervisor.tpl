{{/*
Supervisor mode in one container: leasehold runs the workload itself, in the workload's container and image. An init container copies the program
into a volume that this container mounts. See _guard.tpl for supervisor mode in two containers.
*/}}

{{/* An item of `initContainers`: leasehold's image copies its program into the volume. */}}
{{- define "leasehold.installer" -}}
{{- $values := .Values.leasehold -}}
- name: leasehold-install
  image: {{ include "leasehold.image" . | quote }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  args: [install, /opt/leasehold]
  resources:
    {{- toYaml $values.resources | nindent 4 }}
  securityContext:
    {{- toYaml $values.securityContext | nindent 4 }}
  volumeMounts:
    - name: leasehold-program
      mountPath: /opt/leasehold
{{- end -}}

{{/* The volume of the program. The volume is on disk, because a volume in memory would count against the containers' memory limits. */}}
{{- define "leasehold.programVolume" -}}
- name: leasehold-program
  emptyDir:
    sizeLimit: 64Mi
{{- end -}}

{{- define "leasehold.programMount" -}}
- name: leasehold-program
  mountPath: /opt/leasehold
  readOnly: true
{{- end -}}

{{/* Refuses values without an effect if leasehold runs the workload, in one container or in two. */}}
{{- define "leasehold.checkSupervisor" -}}
{{- if hasKey (include "leasehold.settings" . | fromJson) "lease.handoff_delay" -}}
{{- fail "leasehold: leave out leasehold.config.lease.handoff_delay: leasehold waits for the end of the workload that it runs" -}}
{{- end -}}
{{- include "leasehold.noExtraLeases" (dict "root" . "what" "mode supervisor runs the workload while it holds one lease; set mode to sidecar") -}}
{{- end -}}

{{/* Items of the workload's `command`. */}}
{{- define "leasehold.supervisorCommand" -}}
- /opt/leasehold/leasehold
{{- end -}}

{{/* Items of the workload's `args`, before the workload's own command and arguments. */}}
{{- define "leasehold.supervisorArgs" -}}
{{- include "leasehold.check" . -}}
{{- include "leasehold.checkSupervisor" . -}}
{{- $labelled := include "leasehold.labelled" . -}}
- run
{{ include "leasehold.flags" (dict "root" . "lease" (include "leasehold.lease" .) "labelled" $labelled "directory" .Values.leasehold.statusDirectory "endsFirst" false "podName" "LEASEHOLD_IDENTITY__NAME") }}
{{- if $labelled }}
- --kubernetes-credentials=/etc/leasehold/kubernetes
{{- end }}
- "--"
{{- end -}}

{{/*
Items of the container's `env`. leasehold does not pass these variables to the workload, so the workload's own POD_NAME stays unchanged.
*/}}
{{- define "leasehold.supervisorEnv" -}}
- name: LEASEHOLD_IDENTITY__NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- range list "name" "namespace" "uid" }}
- name: LEASEHOLD_KUBERNETES__POD_{{ upper . }}
  valueFrom:
    fieldRef:
      fieldPath: metadata.{{ . }}
{{- end }}
- name: LEASEHOLD_KUBERNETES__POD_ACCOUNT
  valueFrom:
    fieldRef:
      fieldPath: spec.serviceAccountName
{{- with .Values.leasehold.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
Items of the container's `volumeMounts`. The token is not in the default directory of client libraries. Otherwise the workload would
unintentionally use leasehold's permissions, and could not mount another token.
*/}}
{{- define "leasehold.supervisorMounts" -}}
{{ include "leasehold.programMount" . }}
{{ include "leasehold.mounts" (dict "root" . "labelled" (include "leasehold.labelled" .) "name" "" "directory" .Values.leasehold.statusDirectory "token" "/etc/leasehold/kubernetes") }}
{{- end -}}

{{/* Items of the pod's `volumes`. */}}
{{- define "leasehold.supervisorVolumes" -}}
{{ include "leasehold.programVolume" . }}
{{ include "leasehold.volumes" . }}
{{- end -}}

{{/*
The pod's `terminationGracePeriodSeconds`, as `given` in the value called `key`; 0 means an automatic period. At the end of the period, the
kubelet kills the workload's container. If leasehold runs in this container, the lease is then not released, and must expire.
*/}}
{{- define "leasehold.supervisorGracePeriod" -}}
{{- $settings := include "leasehold.settings" .root | fromJson -}}
{{- $stop := get $settings "workload.stop_grace" | default "30s" -}}
{{- $hook := "" -}}
{{- if get $settings "hooks.on_step_down" -}}
{{- $hook = get $settings "hooks.timeout" | default "10s" -}}
{{- end -}}
{{- $taken := add (include "leasehold.milliseconds" $stop | atoi) (include "leasehold.milliseconds" $hook | atoi) -}}
{{- /* The result is in whole seconds, and includes two seconds to set the label and release the lease. */}}
{{- $needed := div (add $taken 2999) 1000 -}}
{{- $given := int .given -}}
{{- if and $given (lt $given (int $needed)) -}}
{{- $with := ternary (printf " and leasehold.config.hooks.timeout %s" $hook) "" (ne $hook "") -}}
{{- fail (printf "leasehold: %s is %d, and leasehold.config.workload.stop_grace is %s%s: Kubernetes would kill processes that are still stopping; set it to at least %d, or to 0 for an automatic value" .key $given $stop $with $needed) -}}
{{- end -}}
{{- $given | default (add $needed 3) -}}
{{- end -}}

{{/*
A lock instead of a lease, for a job: `leasehold lock NAME -- CMD` in the job's container. The lock has no HTTP server, no status and no label,
so it needs neither a token nor a status directory. Its account has no permission. leasehold compares the account's name to detect whether a
kustomization renamed the objects (kubernetes.rendered_for).
*/}}
{{- define "leasehold.lockFlags" -}}
{{- include "leasehold.noExtraLeases" (dict "root" . "what" "a Job in mode supervisor runs under one lock; set mode to sidecar") -}}
{{- include "leasehold.check" . -}}
{{- $unused := list "lease.handoff_delay" "lease.prefer" "lease.prefer_interval" "identity.priority" "identity.address" "mongodb.watch" "workload.on_exit" -}}
{{- range $key, $_ := include "leasehold.settings" . | fromJson -}}
{{- if or (has $key $unused) (hasPrefix "workload.health." $key) (not (has (splitList "." $key | first) (list "lease" "identity" "mongodb" "workload" "log"))) -}}
{{- fail (printf "leasehold: leave out leasehold.config.%s: it has no effect on a lock, and a Job in mode supervisor runs under a lock" $key) -}}
{{- end -}}
{{- end -}}
- {{ include "leasehold.uriFlag" .Values.leasehold.mongodb }}
{{- include "leasehold.settingFlags" (dict "root" . "podName" "LEASEHOLD_IDENTITY__NAME") }}
{{- end -}}

{{/* Items of the container's `env`. */}}
{{- define "leasehold.lockEnv" -}}
- name: LEASEHOLD_IDENTITY__NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: LEASEHOLD_KUBERNETES__POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: LEASEHOLD_KUBERNETES__POD_ACCOUNT
  valueFrom:
    fieldRef:
      fieldPath: spec.serviceAccountName
- name: LEASEHOLD_KUBERNETES__RENDERED_FOR
  value: {{ include "leasehold.renderedFor" . | quote }}
{{- with .Values.leasehold.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Items of the container's `volumeMounts`. */}}
{{- define "leasehold.lockMounts" -}}
{{ include "leasehold.programMount" . }}
{{- include "leasehold.uriMount" .Values.leasehold.mongodb }}
{{- with .Values.leasehold.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Items of the pod's `volumes`. */}}
{{- define "leasehold.lockVolumes" -}}
{{ include "leasehold.programVolume" . }}
{{- include "leasehold.secretVolume" . }}
{{- with .Values.leasehold.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
