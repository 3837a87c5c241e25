{{/*
Fields of the pod's spec. By default, the automatic token is off, because it would also be mounted into the workload. Service links are not
needed.
*/}}
{{- define "leasehold.pod" -}}
serviceAccountName: {{ include "leasehold.serviceAccountName" . | quote }}
automountServiceAccountToken: {{ .Values.leasehold.serviceAccount.automountServiceAccountToken | default false }}
enableServiceLinks: false
{{- end -}}

{{/*
An item of `initContainers`: a native sidecar, which starts before the workload and ends after it. With `extraLeases`, there is one sidecar for
each lease.
*/}}
{{- define "leasehold.sidecar" -}}
{{- $labelled := include "leasehold.labelled" . -}}
{{- include "leasehold.checkLeases" . -}}
{{- include "leasehold.container" (dict "root" . "lease" (include "leasehold.lease" .) "labelled" $labelled "name" "") -}}
{{- range $name, $_ := .Values.leasehold.extraLeases }}
{{- $root := include "leasehold.rootOf" (dict "root" $ "name" $name) | fromJson }}
{{ include "leasehold.container" (dict "root" $root "lease" (include "leasehold.lease" $root) "labelled" $labelled "name" $name) }}
{{- end }}
{{- end -}}

{{/*
The sidecar of any lease, with or without a token. `name` is a key of `extraLeases`, or empty. If `guards` is true, the sidecar runs the workload
through the guard in the workload's container.
*/}}
{{- define "leasehold.container" -}}
{{- include "leasehold.check" .root -}}
{{- $except := list -}}
{{- if .injected -}}
{{- /* The policy injects both kinds of sidecars, so each kind leaves out the keys of the other. */}}
{{- $except = ternary (list "lease.handoff_delay") (include "leasehold.supervisorKeys" . | fromJsonArray) (eq .guards true) -}}
{{- else if not .guards -}}
{{- include "leasehold.checkSidecar" .root -}}
{{- end -}}
{{- if and .guards (hasKey (include "leasehold.settings" .root | fromJson) "workload.on_exit") -}}
{{- fail "leasehold: leave out leasehold.config.workload.on_exit: the container of a guard ends with its workload; in a release, set mode to supervisor-same-container instead" -}}
{{- end -}}
{{- $values := .root.Values.leasehold -}}
{{- $mounts := include "leasehold.mounts" (dict "root" .root "labelled" .labelled "name" .name "directory" "/run/leasehold" "token" "/var/run/secrets/kubernetes.io/serviceaccount") -}}
{{- $env := include "leasehold.sidecarEnv" .root -}}
{{- include "leasehold.checkUnique" (dict "items" (fromYamlArray $mounts) "field" "mountPath" "keys" "leasehold.extraVolumeMounts") -}}
{{- include "leasehold.checkUnique" (dict "items" (fromYamlArray $env) "field" "name" "keys" "leasehold.extraEnv") -}}
{{- include "leasehold.checkUnique" (dict "items" (include "leasehold.podVolumes" (dict "root" .root "labelled" .labelled) | fromYamlArray) "field" "name" "keys" "leasehold.extraVolumes") -}}
- name: {{ include "leasehold.partName" (dict "part" "leasehold" "name" .name) }}
  image: {{ include "leasehold.image" .root | quote }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  restartPolicy: Always
  args:
    - run
    {{- include "leasehold.flags" (dict "root" .root "lease" .lease "labelled" .labelled "directory" "/run/leasehold" "endsFirst" (not .guards) "injected" .injected "podName" "POD_NAME" "except" $except) | nindent 4 }}
    {{- if .guards }}
    - --workload-socket=/run/leasehold/guard.sock
    {{- end }}
  env:
    {{- $env | nindent 4 }}
  ports:
    {{- include "leasehold.portOf" (dict "root" .root "name" .name) | nindent 4 }}
  {{- include "leasehold.probes" .root | nindent 2 }}
  resources:
    {{- toYaml $values.resources | nindent 4 }}
  securityContext:
    {{- toYaml $values.securityContext | nindent 4 }}
  volumeMounts:
    {{- $mounts | nindent 4 }}
{{- end -}}

{{/* Items of the sidecar's `env`. */}}
{{- define "leasehold.sidecarEnv" -}}
{{- range list "name" "namespace" "uid" }}
- name: POD_{{ upper . }}
  valueFrom:
    fieldRef:
      fieldPath: metadata.{{ . }}
{{- end }}
- name: POD_ACCOUNT
  valueFrom:
    fieldRef:
      fieldPath: spec.serviceAccountName
{{- with .Values.leasehold.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
Items of the `args` of `leasehold run`. The arguments depend on the status directory, on the order in which the workload and the sidecar
end, and on the variable that contains the pod's name.
*/}}
{{- define "leasehold.flags" -}}
{{- $values := .root.Values.leasehold -}}
- --lease-name={{ .lease }}
- {{ include "leasehold.uriFlag" $values.mongodb }}
- --status-directory={{ .directory }}
- --http-listen={{ $values.http.address }}:{{ $values.http.port }}
{{- if .endsFirst }}
- --workload-ends-first=true
{{- end }}
{{- if .labelled }}
- --kubernetes-enabled=on
- --kubernetes-label-prefix={{ $values.kubernetes.labelPrefix }}
- --kubernetes-demote-others={{ $values.kubernetes.demoteOthers }}
- --kubernetes-events={{ $values.kubernetes.events }}
{{- else }}
- --kubernetes-enabled=off
{{- end }}
{{- /* An injected pod may have any namespace and account, and its lease is named after its namespace. */}}
{{- if not .injected }}
- --kubernetes-rendered-for={{ include "leasehold.renderedFor" .root }}
{{- end }}
{{- include "leasehold.settingFlags" (dict "root" .root "podName" .podName "except" .except) }}
{{- end -}}

{{/* An item of the `ports` of the container that leasehold runs in. */}}
{{- define "leasehold.port" -}}
{{- include "leasehold.portOf" (dict "root" . "name" "") -}}
{{- end -}}

{{- define "leasehold.portOf" -}}
- name: {{ include "leasehold.portName" .name }}
  containerPort: {{ .root.Values.leasehold.http.port }}
  protocol: TCP
{{- end -}}

{{/* Kubernetes limits the name of a port to 15 characters. */}}
{{- define "leasehold.portName" -}}
{{- ternary (printf "lh-%s" .) "leasehold" (ne . "") -}}
{{- end -}}

{{/* The name of the pod's `part` (such as a container or volume) for the lease `name`. */}}
{{- define "leasehold.partName" -}}
{{- ternary (printf "%s-%s" .part .name) .part (ne .name "") -}}
{{- end -}}

{{/* The sidecar's probes. The port is a number, because Kubernetes before 1.32 does not resolve the port names of a native sidecar everywhere. */}}
{{- define "leasehold.probes" -}}
{{- $values := .Values.leasehold -}}
startupProbe:
  httpGet:
    path: /livez
    port: {{ $values.http.port }}
  {{- with $values.startupProbe }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
livenessProbe:
  httpGet:
    path: /livez
    port: {{ $values.http.port }}
  {{- with $values.livenessProbe }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
readinessProbe:
  httpGet:
    path: /readyz
    port: {{ $values.http.port }}
  {{- with $values.readinessProbe }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Items of the sidecar's `volumeMounts`, for the status directory and the token's directory. */}}
{{- define "leasehold.mounts" -}}
- name: {{ include "leasehold.partName" (dict "part" "leasehold-status" "name" .name) }}
  mountPath: {{ .directory }}
{{- include "leasehold.uriMount" .root.Values.leasehold.mongodb }}
{{- if .labelled }}
- name: leasehold-token
  mountPath: {{ .token }}
  readOnly: true
{{- end }}
{{- with .root.Values.leasehold.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Items of the pod's `volumes`. */}}
{{- define "leasehold.volumes" -}}
{{- include "leasehold.podVolumes" (dict "root" . "labelled" (include "leasehold.labelled" .) "extra" (keys (.Values.leasehold.extraLeases | default dict) | sortAlpha)) -}}
{{- end -}}

{{- define "leasehold.podVolumes" -}}
{{- $values := .root.Values.leasehold -}}
- name: leasehold-status
  emptyDir:
    medium: Memory
    sizeLimit: 1Mi
{{- range $name := .extra }}
- name: {{ include "leasehold.partName" (dict "part" "leasehold-status" "name" $name) }}
  emptyDir:
    medium: Memory
    sizeLimit: 1Mi
{{- end }}
{{- include "leasehold.secretVolume" .root }}
{{- if .labelled }}
- name: leasehold-token
  projected:
    defaultMode: 292 # 0444; readers of YAML differ on octal numbers
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: {{ $values.kubernetes.tokenExpirationSeconds }}
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
      - downwardAPI:
          items:
            - path: namespace
              fieldRef:
                fieldPath: metadata.namespace
{{- end }}
{{- with $values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
The connection string is in a Secret, or in a file that the user or an agent mounts. The following templates take a map `mongodb` of the values.
*/}}
{{- define "leasehold.uriFlag" -}}
{{- printf "--mongodb-uri-file=%s" (.uriFile | default "/etc/leasehold/mongodb/uri") | quote -}}
{{- end -}}

{{- define "leasehold.uriMount" -}}
{{- if not .uriFile }}
- name: leasehold-mongodb
  mountPath: /etc/leasehold/mongodb
  readOnly: true
{{- end }}
{{- end -}}

{{- define "leasehold.secretVolume" -}}
{{- include "leasehold.uriVolume" (dict "mongodb" .Values.leasehold.mongodb "at" "leasehold.mongodb" "of" "" "mode" "292 # 0444; readers of YAML differ on octal numbers") -}}
{{- end -}}

{{/* The volume of the Secret, from a dict: `mongodb`, the name `at` of this map, whose user it is (`of`), and the `mode` of the file. */}}
{{- define "leasehold.uriVolume" -}}
{{- $mongodb := .mongodb -}}
{{- if and $mongodb.secretName $mongodb.uriFile -}}
{{- fail (printf "leasehold: %s.secretName is %s and %s.uriFile is %s: leave one of them out" .at $mongodb.secretName .at $mongodb.uriFile) -}}
{{- end -}}
{{- if not $mongodb.uriFile }}
- name: leasehold-mongodb
  secret:
    secretName: {{ required (printf "leasehold: set %s.secretName to the Secret with the connection string%s, or %s.uriFile to the path of a file that contains it" .at .of .at) $mongodb.secretName | quote }}
    defaultMode: {{ .mode }}
    items:
      - key: {{ $mongodb.secretKey | quote }}
        path: uri
{{- end }}
{{- end -}}

{{/* An item of the workload's `env`, for each lease. */}}
{{- define "leasehold.statusFile" -}}
- name: LEASEHOLD_STATUS_FILE
  value: {{ printf "%s/status.json" .Values.leasehold.statusDirectory | quote }}
{{- range $name, $_ := .Values.leasehold.extraLeases }}
{{- $root := include "leasehold.rootOf" (dict "root" $ "name" $name) | fromJson }}
- name: LEASEHOLD_STATUS_FILE_{{ $name | upper | replace "-" "_" }}
  value: {{ printf "%s/status.json" $root.Values.leasehold.statusDirectory | quote }}
{{- end }}
{{- end -}}

{{/* An item of the workload's `volumeMounts`, for each lease. */}}
{{- define "leasehold.statusMount" -}}
- name: leasehold-status
  mountPath: {{ .Values.leasehold.statusDirectory }}
  readOnly: true
{{- range $name, $_ := .Values.leasehold.extraLeases }}
{{- $root := include "leasehold.rootOf" (dict "root" $ "name" $name) | fromJson }}
- name: {{ include "leasehold.partName" (dict "part" "leasehold-status" "name" $name) }}
  mountPath: {{ $root.Values.leasehold.statusDirectory }}
  readOnly: true
{{- end }}
{{- end -}}
